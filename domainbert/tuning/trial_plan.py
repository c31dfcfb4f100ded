"""Processes of a trial: the stage, once or for each fold, and the measurement of the model's cost."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.runner.stage_table import Stage
from domainbert.settings.choices import allow_import_words
from domainbert.tasks.config import Headline
from domainbert.tuning.config import COST, VALIDATION
from domainbert.tuning.folds import Fold
from domainbert.tuning.metric_stream import MetricStream
from domainbert.tuning.trial_process import TrialStep, stage_step


@dataclass(frozen=True)
class TrialPlan:
    """The processes of a trial, and the folders and files that they write."""

    steps: list[TrialStep]
    stage_outs: list[Path]
    """The folders of the stage."""
    cost_file: Path
    stream: MetricStream
    """Follows the first folder."""
    last: int | None
    """The last evaluation of the trial, if it is known: after it there is nothing left to prune."""


def make_plan(
    stage: Stage,
    objectives: Sequence[str],
    folds: Sequence[Fold],
    plain: Mapping[str, Any],
    folder: Path,
    headline: Headline | None = None,
) -> TrialPlan:
    """Write the YAMLs of a trial.

    Args:
        stage: the stage to run.
        objectives: names of the objectives.
        folds: folds of cross-validation; without them the stage runs once.
        plain: the stage's settings.
        folder: the trial's folder.
        headline: the metric by which the stage keeps its best evaluation; None where it keeps the last.
    """
    changes: Mapping[str, Mapping[str, Any]] = {"run": {}}
    if folds:
        changes = {
            f"fold-{position}": {"train": str(fold.train), "validation": str(fold.validation)}
            for position, fold in enumerate(folds, 1)
        }
    steps = [stage_step(stage.name, {**plain, **change}, folder, name) for name, change in changes.items()]
    outs, cost_file = [step.out for step in steps], folder / "cost.json"
    if any(name.startswith(COST) for name in objectives):
        steps.append(_measurement(outs[0].with_suffix(".yaml"), cost_file))
    once = len(outs) == 1 and len(plain.get("seeds") or [0]) == 1
    metrics = [name for name in objectives if name.startswith(VALIDATION)]
    stream = MetricStream(outs[0], metrics, headline)
    return TrialPlan(steps, outs, cost_file, stream, plain.get("max_epochs") if once else None)


def _measurement(config: Path, cost_file: Path) -> TrialStep:
    words = (sys.executable, "-m", "domainbert.tuning.measure", str(config), str(cost_file), *allow_import_words())
    return TrialStep(words, cost_file)
