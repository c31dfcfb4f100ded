"""The metric of a validation during training, whatever the task: scores that are made of counts, or of all items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from domainbert.metrics.calibration import judge_temperature
from domainbert.metrics.counts import FloatArray, IntArray


class ScoresOfCounts(Metric):
    """Sums counts over batches and ranks; `compute()` gives the scores as scalar tensors, fit for `log_dict`.

    `scores` tells the scores by name, the headline among them, of the summed counts, which have a `shape`.
    """

    takes_logits = False
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
        return _as_tensors(self.scores(self.counts.cpu().numpy()))


class CalibratedScores(ScoresOfCounts):
    """As `ScoresOfCounts`, with the temperature that is best for the logits, and calibration without and with it."""

    takes_logits = True
    logits: list[torch.Tensor]
    gold: list[torch.Tensor]

    def __init__(self, scores: Callable[[IntArray], Mapping[str, Any]], *shape: int) -> None:
        super().__init__(scores, *shape)
        for name in ("logits", "gold"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(  # type: ignore[override]
        self, counts: NDArray[np.int64], logits: torch.Tensor, gold: NDArray[np.int64]
    ) -> None:
        """Add the counts of a batch, its logits (texts, classes) and right classes (texts,)."""
        super().update(counts)
        self.logits.append(logits.float())
        self.gold.append(torch.from_numpy(gold).to(logits.device))

    def compute(self) -> dict[str, torch.Tensor]:
        """See `ScoresOfCounts.compute`, and `judge_temperature` for the further scores. What is not a
        number counts as 0: such a model is refused."""
        logits, gold = (dim_zero_cat(state).cpu().numpy() for state in (self.logits, self.gold))
        return super().compute() | _as_tensors(judge_temperature(np.nan_to_num(logits), gold))


class ScoresOfRows(Metric):
    """Keeps a row of numbers for each item, for scores that no counts make, such as those at the best threshold.

    `scores` tells the scores by name, the headline among them, of the rows (items, `width`) of all ranks.
    """

    numbers: list[torch.Tensor]

    def __init__(self, scores: Callable[[FloatArray], Mapping[str, Any]], width: int) -> None:
        super().__init__()
        self.scores, self.width = scores, width
        self.set_dtype(torch.float64)  # of what a rank without items brings, which has no rows either: so they are flat
        self.add_state("numbers", [], dist_reduce_fx="cat")

    def update(self, rows: NDArray[np.float64]) -> None:
        """Add the rows (N, `width`) of a batch."""
        self.numbers.append(torch.from_numpy(rows.ravel()).to(self.device))

    def compute(self) -> dict[str, torch.Tensor]:
        """The scores of everything seen since the last reset."""
        return _as_tensors(self.scores(dim_zero_cat(self.numbers).cpu().numpy().reshape(-1, self.width)))


def _as_tensors(scores: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in scores.items()}
