"""Learning curves: what each training has logged, by metric, and its best evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.report.runs import Run, StageFolder, settings_of

_MOST_POINTS = 300
"""Of a curve: more of them are no better to see."""

_LOG, _SEEDS, _TRAINING = "logs/metrics.jsonl", "seeds.json", "training.json"
_PRETRAINING = "Pretraining"
_OF_PRETRAINING = ("validation/loss", "validation/bits_per_character")


@dataclass(frozen=True)
class Curve:
    """One metric of one training."""

    training: str
    """The stage, with its run where there are several."""
    seed: str
    """Empty where the training has one seed only."""
    metric: str
    """As it is logged: `validation/f1`."""
    steps: list[int]
    values: list[float]
    best: int | None = None
    """The step whose model was kept."""
    not_finite: int = 0
    """Values that were not finite; they are left out."""


@dataclass(frozen=True)
class Group:
    """Curves that are drawn together: of trainings that are judged by the same metric."""

    title: str
    metrics: list[str]
    """One panel each."""
    curves: list[Curve]

    @property
    def trainings(self) -> list[str]:
        """The trainings in order, each once."""
        return list(dict.fromkeys(curve.training for curve in self.curves))

    def not_finite(self) -> list[str]:
        """A sentence for each curve in which values are left out."""
        return [
            f"{curve.training} {curve.seed}: {curve.not_finite:,} values of {curve.metric} are not finite"
            for curve in self.curves
            if curve.not_finite
        ]

    def panel(self, metric: str) -> list[Curve]:
        """The curves of a metric."""
        return [curve for curve in self.curves if curve.metric == metric and curve.steps]


def groups(runs: Sequence[Run]) -> list[Group]:
    """The curves of all trainings, those without seeds (pretraining) first."""
    found: dict[tuple[str, tuple[str, ...]], list[Curve]] = {}
    for run in runs:
        suffix = "" if len(runs) == 1 else f" ({run.name})"
        for stage in run.stages:
            seeds = run.json(stage.path / _SEEDS, "the seeds of a training", optional=True)
            judged = (seeds["metric"],) if seeds.get("metric") else _OF_PRETRAINING
            metrics, title = (*judged, "train/loss", "train/lr"), _title(stage) if seeds else _PRETRAINING
            for folder in _logged(stage):
                curves = _curves(run, folder, stage.name + suffix, metrics, judged[0] if seeds else "")
                found.setdefault((title, metrics), []).extend(curves)
    ordered = sorted(found, key=lambda key: key[0] != _PRETRAINING)
    return [Group(title, list(metrics), found[title, metrics]) for title, metrics in ordered]


def _title(stage: StageFolder) -> str:
    """The task that is trained, as its settings name it: `Classification`."""
    task = settings_of(stage).get("task") or {}
    named = task.get("class_path", "") if isinstance(task, dict) else str(task)
    return str(named).rpartition(".")[2] or stage.name


def _logged(stage: StageFolder) -> list[Path]:
    """The folders with a log: that of the stage, or those of its seeds."""
    return [folder for folder in (stage.path, *sorted(stage.path.glob("seed-*"))) if (folder / _LOG).is_file()]


def _curves(run: Run, folder: Path, training: str, metrics: Sequence[str], judged: str) -> list[Curve]:
    rows = run.lines(folder / _LOG)
    seed = folder.name if judged else ""
    best = run.json(folder / _TRAINING, "the best epoch", optional=True).get("validation", {}).get("step")
    return [_curve(rows, training, seed, metric, best if metric == judged else None) for metric in metrics]


def _curve(rows: Sequence[dict[str, Any]], training: str, seed: str, metric: str, best: int | None) -> Curve:
    """The last value of each step counts: a training that was resumed has logged some steps twice."""
    points = {row["step"]: row[metric] for row in rows if "step" in row and metric in row}
    finite = {step: value for step, value in sorted(points.items()) if value is not None and math.isfinite(value)}
    steps = _thinned(list(finite), best)
    values = [finite[step] for step in steps]
    return Curve(training, seed, metric, steps, values, best, len(points) - len(finite))


def _thinned(steps: list[int], best: int | None) -> list[int]:
    """Every n-th step, the last one and the best one."""
    every = -(-len(steps) // _MOST_POINTS)
    return [step for number, step in enumerate(steps) if number % max(every, 1) == 0 or step in (best, steps[-1])]
