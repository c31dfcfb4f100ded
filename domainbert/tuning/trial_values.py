"""The values of a trial's objectives: while its process writes them, and when it has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from domainbert.base.files import read_json
from domainbert.base.sealed import MANIFEST
from domainbert.metrics.headline import Headline
from domainbert.tuning.config import COST, VALIDATION

_FILES = ("logs/metrics.jsonl", "*/logs/metrics.jsonl")


class NoSuchMetric(Exception):
    """The stage does not measure an objective; `names` lists what it measures."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(name)
        self.name, self.names = name, list(names)


def read_value(objective: str, stage_outs: Sequence[Path], cost_file: Path) -> float:
    """The value of `validation/NAME`, the mean over folds and seeds, or of `cost/NAME`, which `measure` has written.

    Raises:
        NoSuchMetric: it was not measured.
    """
    kind, _, name = objective.partition("/")
    if objective.startswith(COST):
        rows = [read_json(cost_file, "what a model costs")]
    else:
        rows = [row for out in stage_outs for row in _validations(out)]
    if not rows or any(name not in row for row in rows):
        raise NoSuchMetric(objective, [f"{kind}/{key}" for row in rows[:1] for key in row if key != "step"])
    return sum(float(row[name]) for row in rows) / len(rows)


def _validations(out: Path) -> list[dict[str, float]]:
    """The validation metrics of the model that a stage has kept, one for each of its seeds."""
    metrics = read_json(out / MANIFEST, "a manifest of domainbert")["metrics"]
    trainings = metrics["seeds"] if isinstance(metrics.get("seeds"), list) else [metrics]
    return [one["validation"] for one in trainings if isinstance(one.get("validation"), dict)]


class MetricStream:
    """Follows the first `metrics.jsonl` below a stage's folder: the value of the stage if it ended now.

    A stage that trains several times, one seed after the other, is followed in its first training only. Later ones
    begin after as many evaluations as the first took, so there trials are not comparable.

    Args:
        out: the folder of the stage.
        metrics: names such as `validation/f1`. The first is followed; the others have to be measured, too.
        kept_by: the metric by which the stage keeps the best of its evaluations; None where it keeps the last.
    """

    def __init__(self, out: Path, metrics: Sequence[str], kept_by: Headline | None = None) -> None:
        self.out, self.metrics, self.kept_by = out, metrics, kept_by
        self.values: list[float] = []
        """One for each evaluation so far; evaluations are counted, as their steps depend on the batch size."""
        self._file: Path | None = None
        self._seen: tuple[int, int, int] | None = None

    def new_values(self) -> list[float]:
        """The values at the evaluations since the last call; `NoSuchMetric` if the stage does not measure them all."""
        if self._file is None:
            found = [file for pattern in _FILES for file in self.out.glob(pattern)]
            self._file = min(found, key=lambda file: file.stat().st_mtime_ns, default=None)
        if self._file is None or not self._file.exists():
            return []
        status = self._file.stat()
        if (stamp := (status.st_ino, status.st_size, status.st_mtime_ns)) == self._seen:
            return []
        self._seen = stamp
        new = self._kept(_evaluations(self._file))[len(self.values) :]
        self.values += new
        return new

    def _kept(self, rows: Sequence[dict[str, float]]) -> list[float]:
        """The followed metric, after each evaluation, of the evaluation that the stage would keep."""
        values: list[float] = []
        kept, best = None, self.kept_by.worst if self.kept_by else 0.0
        for row in rows:
            for missing in (name for name in self.metrics if name not in row):
                raise NoSuchMetric(missing, list(row))
            if self.kept_by is None:
                kept = row
            elif self.kept_by.is_better(row[self.kept_by.monitor], best):  # of equal ones the first, as in training
                kept, best = row, row[self.kept_by.monitor]
            values.append(float((kept or row)[self.metrics[0]]))
        return values


def _evaluations(file: Path) -> list[dict[str, float]]:
    """The validation metrics in a `metrics.jsonl`; a last line that is not complete yet does not count."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("\n") and VALIDATION in line]
    found = [{name: value for name, value in row.items() if name.startswith(VALIDATION)} for row in rows]
    return [row for row in found if row]
