"""`metrics.jsonl`: what was measured, a JSON object a line, added to as training goes and continued when it resumes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import Logger

from domainbert.base.files import write_text


class MetricsFile(Logger):
    """Writes each logged set of metrics as a line `{"step": ..., "name": value, ...}`; steps count from 1.

    The file is made, with its folder, at the first line. A line is complete when the next one begins; whoever follows
    the file reads up to the last line feed.
    """

    name = "metrics"
    version = ""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @property
    def save_dir(self) -> str:
        """The folder of the file."""
        return str(self.path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The manifest has them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Add a line."""
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": (step or 0) + 1, **values}) + "\n")

    @rank_zero_only
    def go_on_from(self, step: int) -> None:
        """Drop the lines after a step: they were written by a process that went further than its last checkpoint."""
        if not self.path.is_file():
            return
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        write_text(self.path, "".join(line for line in lines if _step_of(line) <= step))


def _step_of(line: str) -> float:
    """Infinity where the line is not as it was written: killed processes leave half of one, power failures zeros."""
    try:
        return float(json.loads(line)["step"]) if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf
