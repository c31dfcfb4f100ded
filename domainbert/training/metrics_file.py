"""`metrics.jsonl`: a logger that appends metrics as JSON lines and continues the file when a training resumes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import Logger

from domainbert.base.files import write_text


class MetricsFile(Logger):
    """Logger that appends each set of metrics as a line `{"step": ..., "name": value, ...}`; steps count from 1.

    The first line creates the file and its folder. The last line may be incomplete while a training runs: read only up
    to the last line feed.
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
        """Do nothing: the manifest contains the settings."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append a line with the metrics of a step."""
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": (step or 0) + 1, **values}) + "\n")

    @rank_zero_only
    def truncate_after(self, step: int) -> None:
        """Delete the lines after `step`, which a process wrote after its last checkpoint."""
        if not self.path.is_file():
            return
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        write_text(self.path, "".join(line for line in lines if _step_of(line) <= step))


def _step_of(line: str) -> float:
    """Return the step of a line; infinity for a damaged line: half a line after a kill, zeros after a power failure."""
    try:
        return float(json.loads(line)["step"]) if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf
