"""Validation metrics of all tasks: scores computed from summed counts, or from one row of numbers per item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from domainbert.metrics.counts import FloatArray, IntArray


class SummedCounts(Metric):
    """Metric that sums counts over batches and ranks; `compute()` returns scalar tensors for `log_dict`.

    `scores` maps the summed counts, of shape `shape`, to scores by name.
    """

    counts: torch.Tensor

    def __init__(self, scores: Callable[[IntArray], Mapping[str, Any]], *shape: int) -> None:
        super().__init__()
        self.scores = scores
        self.add_state("counts", torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def add(self, counts: NDArray[np.int64]) -> None:
        """Add counts of shape `shape`."""
        self.counts += torch.from_numpy(counts).to(self.counts.device)

    def compute(self) -> dict[str, torch.Tensor]:
        """Return the scores since the last reset."""
        return as_tensors(self.scores(self.counts.cpu().numpy()))


class StoredRows(Metric):
    """Metric that stores a row of numbers per item, for scores that need all items, such as scores at the best
    threshold.

    `scores` maps the rows (items, `width`) of all ranks to scores by name.
    """

    numbers: list[torch.Tensor]

    def __init__(self, scores: Callable[[FloatArray], Mapping[str, Any]], width: int) -> None:
        super().__init__()
        self.scores, self.width = scores, width
        self.add_state("numbers", [], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """Type of the rows: float64, also for the empty tensor of a rank without items."""
        return torch.float64

    def add(self, rows: NDArray[np.float64]) -> None:
        """Add rows (N, `width`); they are stored flat, like the empty tensor of a rank without items."""
        self.numbers.append(torch.from_numpy(rows.ravel()).to(self.device))

    def compute(self) -> dict[str, torch.Tensor]:
        """Return the scores since the last reset."""
        return as_tensors(self.scores(dim_zero_cat(self.numbers).cpu().numpy().reshape(-1, self.width)))


class RowScores(StoredRows):
    """`StoredRows` whose `update` takes the rows of a batch."""

    def update(self, rows: NDArray[np.float64]) -> None:
        """Add rows (N, `width`)."""
        self.add(rows)


def as_tensors(scores: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return scores as scalar tensors in double precision, by name."""
    return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in scores.items()}
