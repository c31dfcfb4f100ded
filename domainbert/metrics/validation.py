"""The metric of a validation during training, whatever the task: scores that are made of counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchmetrics import Metric

from domainbert.metrics.counts import IntArray


class ScoresOfCounts(Metric):
    """Sums counts over batches and ranks; `compute()` gives the scores as scalar tensors, fit for `log_dict`.

    `scores` tells the scores by name, the headline among them, of the summed counts, which have a `shape`.
    """

    counts: torch.Tensor

    def __init__(self, scores: Callable[[IntArray], Mapping[str, Any]], *shape: int) -> None:
        super().__init__()
        self.scores = scores
        self.add_state("counts", torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, counts: NDArray[np.int64]) -> None:
        """Add the counts of a batch."""
        self.counts += torch.from_numpy(counts).to(self.counts.device)

    def compute(self) -> dict[str, torch.Tensor]:
        """The scores of everything seen since the last reset."""
        found = self.scores(self.counts.cpu().numpy())
        return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in found.items()}
