"""Learning curves: the logged values of each training by metric, and its best step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.run_record import seed_folders
from domainbert.report.runs import Run, StageFolder, settings_of

_MAX_POINTS = 300
"""Maximum number of points of a curve; more points are not visible."""

_LOG, _SEEDS, _TRAINING = "logs/metrics.jsonl", "seeds.json", "training.json"
_PRETRAINING = "Pretraining"
_PRETRAINING_METRICS = ("validation/loss", "validation/bits_per_character")


@dataclass(frozen=True)
class Curve:
    """Values of one metric in one training."""

    training: str
    """Name of the stage, with the name of its run if there are several runs."""
    seed: str
    """Folder of the seed; empty for a training without seeds."""
    metric: str
    """Logged name: `validation/f1`."""
    steps: list[int]
    values: list[float]
    best: int | None = None
    """Step of the saved model."""
    not_finite: int = 0
    """Number of omitted values that are not finite."""


@dataclass(frozen=True)
class CurveGroup:
    """Curves in one figure, from trainings with the same validation metric."""

    title: str
    metrics: list[str]
    """Metrics; each has a panel."""
    curves: list[Curve]

    @property
    def trainings(self) -> list[str]:
        """Distinct trainings in order."""
        return list(dict.fromkeys(curve.training for curve in self.curves))

    def not_finite_messages(self) -> list[str]:
        """Return a message for each curve with omitted values."""
        return [
            f"{curve.training} {curve.seed}: values of {curve.metric} that are not finite: {curve.not_finite:,}"
            for curve in self.curves
            if curve.not_finite
        ]

    def panel(self, metric: str) -> list[Curve]:
        """Return the curves of a metric that have values."""
        return [curve for curve in self.curves if curve.metric == metric and curve.steps]


def curve_groups(runs: Sequence[Run]) -> list[CurveGroup]:
    """Return the curves of all trainings, in groups; pretraining (without seeds) comes first."""
    by_group: dict[tuple[str, tuple[str, ...]], list[Curve]] = {}  # by title and metrics
    for run in runs:
        for stage in run.stages:
            seeds = run.json(stage.path / _SEEDS, "the seeds of a training", optional=True)  # written at the end
            monitored = seeds.get("metric", "")  # metric that chose the saved models
            folders = [
                folder
                for folder in (stage.path, *seed_folders(stage.path))
                if run.is_intact(folder / "logs", "metrics.jsonl") and (folder / _LOG).is_file()
            ]
            logs = {folder: run.lines(folder / _LOG) for folder in folders}
            title, scores = _PRETRAINING, [*_PRETRAINING_METRICS]
            if monitored or settings_of(stage).get("task"):
                title, scores = _task_name(stage), [monitored] if monitored else _first_score(logs.values())
            metrics = (*scores, "train/loss", "train/lr")
            for folder, rows in logs.items():
                seed = "" if title == _PRETRAINING else folder.name
                best = run.json(folder / _TRAINING, "the best epoch", optional=True).get("validation", {}).get("step")
                by_group.setdefault((title, metrics), []).extend(
                    _curve(rows, stage.name + run.suffix, seed, metric, best if metric == monitored else None)
                    for metric in metrics
                )
    groups = [CurveGroup(title, list(metrics), curves) for (title, metrics), curves in by_group.items()]
    return sorted(groups, key=lambda group: group.title != _PRETRAINING)


def _task_name(stage: StageFolder) -> str:
    task = settings_of(stage).get("task") or {}
    name = task.get("class_path", "") if isinstance(task, dict) else str(task)
    return str(name).rpartition(".")[2] or stage.name


def _first_score(logs: Iterable[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return the first validation metric but the loss in the logs; [] before the first evaluation."""
    names = (name for rows in logs for row in rows for name in row)
    return [name for name in names if name.startswith("validation/") and name != "validation/loss"][:1]


def _curve(rows: Sequence[dict[str, Any]], training: str, seed: str, metric: str, best: int | None) -> Curve:
    """Keep the last value of each step: a resumed training logs some steps twice."""
    points = {row["step"]: row[metric] for row in rows if "step" in row and metric in row}
    finite = {step: value for step, value in sorted(points.items()) if value is not None and math.isfinite(value)}
    steps = _thin_out(list(finite), best)
    num_not_finite = len(points) - len(finite)
    return Curve(training, seed, metric, steps, [finite[step] for step in steps], best, num_not_finite)


def _thin_out(steps: list[int], best: int | None) -> list[int]:
    stride = max(math.ceil(len(steps) / _MAX_POINTS), 1)
    return [step for index, step in enumerate(steps) if index % stride == 0 or step in (best, steps[-1])]
