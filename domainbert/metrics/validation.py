"""The metric of a validation during training, whatever the task: scores made of counts, or of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from domainbert.metrics.counts import FloatArray, IntArray


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


class ScoresOfNumbers(Metric):
    """Collects true and predicted numbers over batches and ranks, for scores that no sum of counts gives: of ranks.

    `scores` tells the scores by name, the headline among them, of all of them, (texts,) each.
    """

    gold: list[torch.Tensor]
    predicted: list[torch.Tensor]

    def __init__(self, scores: Callable[[FloatArray, FloatArray], Mapping[str, float]]) -> None:
        super().__init__()
        self.scores = scores
        self.set_dtype(torch.float64)  # of what a rank without texts brings
        for name in ("gold", "predicted"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, gold: torch.Tensor, predicted: torch.Tensor) -> None:
        """Add the numbers of a batch, (N,) each."""
        self.gold.append(gold.to(self.device).double())
        self.predicted.append(predicted.to(self.device).double())

    def compute(self) -> dict[str, torch.Tensor]:
        """The scores of everything seen since the last reset."""
        gold, predicted = (dim_zero_cat(values).cpu().numpy() for values in (self.gold, self.predicted))
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in self.scores(gold, predicted).items()}
