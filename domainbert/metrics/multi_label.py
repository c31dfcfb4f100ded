"""Scores of texts that have any number of labels each; see `counts` for the averages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torchmetrics import Metric

from domainbert.metrics.counts import IntArray, macro_f1, micro_f1, precision, recall

THRESHOLDS = np.arange(1, 100) / 100
"""Probabilities from which on a label may be taken to hold: 0.01 to 0.99."""


def count_labels(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]) -> IntArray:
    """Counts of each text and label: (texts, labels, 3) of tp, fp, fn.

    Raises:
        ValueError: the two have different lengths, or a label is not in `labels`.
    """
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} texts but {len(predicted)} predictions")
    unknown = {label for side in (gold, predicted) for one in side for label in one}.difference(labels)
    if unknown:
        raise ValueError(f"labels {sorted(unknown)} are not among {list(labels)}")
    index = {label: number for number, label in enumerate(labels)}
    counts = np.zeros((len(gold), len(labels), 3), dtype=np.int64)
    for text, (wanted, found) in enumerate(zip(map(set, gold), map(set, predicted), strict=True)):
        for place, some in enumerate((wanted & found, found - wanted, wanted - found)):
            counts[text, [index[label] for label in some], place] = 1
    return counts


class MultiLabelF1(Metric):
    """Micro and macro F1 for validation during training, at the threshold with the highest micro F1 on all of it.

    `compute()` gives `f1` (micro, the headline), `precision`, `recall` (micro), `macro_f1` and the `threshold`, one for
    all labels: one for each would be fitted to the few texts of a rare label. Of equal ones it is that nearest to 0.5,
    of two as near the lower one. Counts are summed over batches and ranks, so that the same data gives the same
    threshold however it is divided.

    Args:
        num_labels: how many labels the model knows.
    """

    full_state_update = False
    higher_is_better = True
    counts: torch.Tensor  # (labels, whether gold has it, thresholds that the probability reaches)

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        shape = (num_labels, 2, len(THRESHOLDS) + 1)
        self.add_state("counts", torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, gold: torch.Tensor, probabilities: torch.Tensor) -> None:
        """Add some texts: whether each label holds, and its probability, both (texts, labels).

        What is not a number reaches no threshold, as in prediction.
        """
        labels, sides, reached = self.counts.shape
        found = np.nan_to_num(probabilities.cpu().double().numpy())
        places = np.searchsorted(THRESHOLDS, found, side="right")
        cells = (np.arange(labels) * sides + gold.cpu().numpy()) * reached + places
        counts = np.bincount(cells.ravel(), minlength=labels * sides * reached).reshape(labels, sides, reached)
        self.counts += torch.from_numpy(counts).to(self.counts.device)

    def compute(self) -> dict[str, torch.Tensor]:
        """The scores of everything seen since the last reset."""
        counts = self._counts_by_threshold()
        scores = micro_f1(counts)
        best = np.flatnonzero(scores == scores.max())
        chosen = best[np.argmin(np.abs(best - len(THRESHOLDS) // 2))]
        micro = counts[chosen].sum(axis=0)
        values = {
            "f1": scores[chosen],
            "precision": precision(micro),
            "recall": recall(micro),
            "macro_f1": macro_f1(counts[chosen]),
            "threshold": THRESHOLDS[chosen],
        }
        return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in values.items()}

    def _counts_by_threshold(self) -> IntArray:
        """(thresholds, labels, 3) of tp, fp, fn."""
        counts = self.counts.cpu().numpy()
        above = counts[:, :, ::-1].cumsum(axis=-1)[:, :, ::-1][:, :, 1:]  # texts that reach each threshold
        false_positive, true_positive = above[:, 0], above[:, 1]
        false_negative = counts[:, 1].sum(axis=-1, keepdims=True) - true_positive
        found: IntArray = np.stack([true_positive, false_positive, false_negative], axis=-1).swapaxes(0, 1)
        return found
