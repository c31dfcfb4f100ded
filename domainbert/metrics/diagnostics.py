"""What `metrics.json` says about a system beside its scores: confusion matrix, reliability, accuracy by length.

Reliability is the accuracy of predictions as a function of their confidence. Expected calibration error: Naeini, Cooper
and Hauskrecht (2015, "Obtaining well calibrated probabilities using Bayesian binning", AAAI), for neural networks Guo
et al. (2017, arXiv:1706.04599). Bins have equal numbers of predictions (Nixon et al. 2019, "Measuring calibration in
deep learning", arXiv:1904.01685, section 3.3): of bins with equal width, most would be nearly empty, because most
confidences are high. Brier score (Brier 1950) of the event "correct".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NONE = "none"
"""Name of the last label: its column counts missed items, its row spurious items. In brackets if a label has this
name."""

Pair = tuple[str | None, str | None]
"""Gold label and predicted label; None if there is none."""

BINS = 15
"""Maximum number of bins of `reliability`."""

LENGTHS = ("0-8", "9-16", "17-32", "33-64", "65-128", "129-256", ">256")
"""Groups of items by number of words."""

_MAX_WORDS = (8, 16, 32, 64, 128, 256)  # maximum words of each group except the last


def confusion(runs: Sequence[Sequence[Pair]]) -> dict[str, Any]:
    """Return the confusion matrix of runs: `labels` and `counts`.

    `labels` are all labels that occur in a run, sorted; if None occurs, "none" is added as the last label.
    `counts[i][j]` is the number of items with gold label i and predicted label j, mean of the runs. So the sum of a row
    is the number of gold items, the sum of a column the number of predicted items.
    """
    occurring = {label for run in runs for pair in run for label in pair}
    names = sorted(label for label in occurring if label is not None)
    order: list[str | None] = [*names, *([None] if None in occurring else [])]
    index = {label: number for number, label in enumerate(order)}
    counts = np.zeros((len(runs), len(order), len(order)), dtype=np.int64)  # run, gold, predicted
    for matrix, run in zip(counts, runs, strict=True):
        for gold, predicted in run:
            matrix[index[gold], index[predicted]] += 1
    none_label = NONE
    while none_label in names:  # a label of the task has this name
        none_label = f"({none_label})"
    labels = [none_label if label is None else label for label in order]
    runs_are_equal = (counts == counts[0]).all()  # then the counts stay integers
    return {"labels": labels, "counts": (counts[0] if runs_are_equal else counts.mean(axis=0)).tolist()}


def reliability(predictions: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """Return `bins` (by ascending confidence), `ece` and `brier` of predictions (probability, whether it is correct).

    A bin has the mean `confidence`, the `accuracy` and the `count` of its predictions. Edges are quantiles, and equal
    probabilities are in the same bin, so there may be fewer than 15 bins. `predictions` must not be empty.
    """
    confidence, correct = np.asarray(predictions, dtype=np.float64).T
    edges = np.percentile(confidence, 100 * np.linspace(0, 1, BINS + 1)[1:-1])  # between the bins
    bin_index = np.searchsorted(edges, confidence)
    sums = np.zeros((BINS, 3))  # of confidence, correct predictions, all predictions
    np.add.at(sums, bin_index, np.stack([confidence, correct, np.ones_like(correct)], axis=1))
    sums = sums[sums[:, 2] > 0]  # without empty bins
    means, counts = sums[:, :2] / sums[:, 2:], sums[:, 2].astype(np.int64)
    bins = zip(*means.T.tolist(), counts.tolist(), strict=True)
    return {
        "bins": [{"confidence": mean, "accuracy": accuracy, "count": count} for mean, accuracy, count in bins],
        "ece": float(np.abs(sums[:, 0] - sums[:, 1]).sum() / len(correct)),
        "brier": float(np.mean((confidence - correct) ** 2)),
    }


def accuracy_by_length(words: Sequence[int], runs: Sequence[Sequence[bool]]) -> dict[str, dict[str, float]]:
    """Return `support` (number of items) and `right` (share of correct items, mean of runs) of each length group.

    `words` (items,) are the lengths of the items; each run has, for each item, whether it is correct.
    """
    groups = np.searchsorted(_MAX_WORDS, words)
    share = np.mean(np.asarray(runs, dtype=np.float64), axis=0)
    return {
        LENGTHS[group]: {"support": int((groups == group).sum()), "right": float(share[groups == group].mean())}
        for group in np.unique(groups).tolist()
    }
