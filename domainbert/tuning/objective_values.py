"""The values of a trial's objectives, from what its stage has written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from domainbert.base.files import read_json
from domainbert.base.sealed import MANIFEST
from domainbert.tuning.config import COST, VALIDATION


class NoSuchMetric(Exception):
    """The stage does not measure an objective; `names` lists what it measures."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(name)
        self.name, self.names = name, list(names)


def read_value(objective: str, stage_outs: Sequence[Path], cost_file: Path) -> float:
    """The value of an objective: the mean over folds and over seeds.

    Args:
        objective: `validation/NAME` or `cost/NAME`.
        stage_outs: folders that the stage has written.
        cost_file: the file that `measure` has written, for a cost.

    Raises:
        NoSuchMetric: it was not measured.
    """
    if objective.startswith(COST):
        rows = [read_json(cost_file, "what a model costs")]
    else:
        rows = [row for out in stage_outs for row in _validations(out)]
    name = objective.partition("/")[2]
    if not rows or any(name not in row for row in rows):
        prefix = COST if objective.startswith(COST) else VALIDATION
        raise NoSuchMetric(objective, [f"{prefix}{key}" for row in rows[:1] for key in row if key != "step"])
    return sum(float(row[name]) for row in rows) / len(rows)


def _validations(out: Path) -> list[dict[str, float]]:
    """The validation metrics of the model that a stage has kept, one for each of its seeds."""
    metrics = read_json(out / MANIFEST, "a manifest of domainbert")["metrics"]
    trainings = metrics["seeds"] if isinstance(metrics.get("seeds"), list) else [metrics]
    return [one["validation"] for one in trainings if isinstance(one.get("validation"), dict)]
