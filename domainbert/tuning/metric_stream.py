"""The evaluations of a trial, as they are written by its process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILES = ("logs/metrics.jsonl", "*/logs/metrics.jsonl")


class MetricStream:
    """Follows one metric in the first `metrics.jsonl` below a stage's folder.

    A stage that trains several times, with one seed after the other, is followed in its first training only: only there
    are trials comparable, as later ones begin after as many evaluations as the first took.

    Args:
        out: the folder of the stage.
        metric: its name there: `validation/f1`.
    """

    def __init__(self, out: Path, metric: str) -> None:
        self.out, self.metric = out, metric
        self.values: list[float] = []
        """Of the evaluations so far; they are counted, as their steps depend on the batch size."""
        self._file: Path | None = None
        self._seen: tuple[int, int, int] | None = None

    def new_values(self) -> list[float]:
        """The evaluations since the last call."""
        if self._file is None:
            found = [file for pattern in _FILES for file in self.out.glob(pattern)]
            self._file = min(found, key=lambda file: file.stat().st_mtime_ns, default=None)
        if self._file is None or not self._file.exists():
            return []
        status = self._file.stat()
        if (stamp := (status.st_ino, status.st_size, status.st_mtime_ns)) == self._seen:
            return []
        self._seen = stamp
        new = evaluations(self._file, self.metric)[len(self.values) :]
        self.values += new
        return new


def evaluations(file: Path, metric: str) -> list[float]:
    """A metric's values in a `metrics.jsonl`; a last line that is not complete yet does not count."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("\n") and metric in line]
    return [float(row[metric]) for row in rows if metric in row]
