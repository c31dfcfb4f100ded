"""The metric of a validation during training, whatever the task: scores that are made of counts, or of all items."""

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
    """Sums counts over batches and ranks; `compute()` gives the scores as scalar tensors, fit for `log_dict`.

    `scores` tells the scores by name, the headline among them, of the summed counts, which have a `shape`.
    """

    counts: torch.Tensor

    def __init__(self, scores: Callable[[IntArray], Mapping[str, Any]], *shape: int) -> None:
        super().__init__()
        self.scores = scores
        self.add_state("counts", torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def add(self, counts: NDArray[np.int64]) -> None:
        """Add counts."""
        self.counts += torch.from_numpy(counts).to(self.counts.device)

    def compute(self) -> dict[str, torch.Tensor]:
        """The scores of everything seen since the last reset."""
        return as_tensors(self.scores(self.counts.cpu().numpy()))


class KeptRows(Metric):
    """Keeps a row of numbers for each item, for scores that no counts make, such as those at the best threshold.

    `scores` tells the scores by name, the headline among them, of the rows (items, `width`) of all ranks.
    """

    numbers: list[torch.Tensor]

    def __init__(self, scores: Callable[[FloatArray], Mapping[str, Any]], width: int) -> None:
        super().__init__()
        self.scores, self.width = scores, width
        self.add_state("numbers", [], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """Of what a rank without items brings, whose rows are flat for that too; `to(device)` would forget another."""
        return torch.float64

    def add(self, rows: NDArray[np.float64]) -> None:
        """Add rows (N, `width`)."""
        self.numbers.append(torch.from_numpy(rows.ravel()).to(self.device))

    def compute(self) -> dict[str, torch.Tensor]:
        """The scores of everything seen since the last reset."""
        return as_tensors(self.scores(dim_zero_cat(self.numbers).cpu().numpy().reshape(-1, self.width)))


class ScoresOfRows(KeptRows):
    """Scores of batches whose rows are given."""

    def update(self, rows: NDArray[np.float64]) -> None:
        """Add the rows (N, `width`) of a batch."""
        self.add(rows)


def as_tensors(scores: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Scores as scalars, in double precision."""
    return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in scores.items()}
