"""Counts and validation scores of texts with one class each, or with any number of labels.

Macro F1 is the mean over the labels of the training set that occur in gold or prediction: one that the test set lacks
and the model never predicts has no F1 and would only lower the mean.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.counts import IntArray, accuracy, by_name, macro_f1, micro_f1, precision, recall, weighted_f1

THRESHOLDS = np.arange(1, 100) / 100
"""Probabilities from which on a label may be taken to hold: 0.01 to 0.99."""


def count_classes(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> IntArray:
    """Counts of each text and class: (texts, classes, 3) of tp, fp, fn.

    A wrong text is a false negative of its class and a false positive of the predicted one. Different lengths, or a
    label that is not among `labels`, raise `ValueError`.

    >>> from domainbert import count_classes
    >>> count_classes(["a", "b"], ["a", "a"], ["a", "b"]).sum(axis=0).tolist()  # tp, fp, fn of each class
    [[1, 1, 0], [0, 0, 1]]
    """
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold labels but {len(predicted)} predictions")
    index = _numbers({*gold, *predicted}, labels)
    wanted, found = (np.array([index[label] for label in side], dtype=np.int64) for side in (gold, predicted))
    return count_class_ids(wanted, found, len(labels))


def count_class_ids(gold: IntArray, predicted: IntArray, num_classes: int) -> IntArray:
    """As `count_classes`, for class numbers: two arrays (texts,) give (texts, classes, 3)."""
    counts = np.zeros((len(gold), num_classes, 3), dtype=np.int64)
    text, wrong = np.arange(len(gold)), gold != predicted
    counts[text, gold, 2 * wrong] = 1  # a true positive, or a false negative
    counts[text[wrong], predicted[wrong], 1] = 1
    return counts


def class_scores(counts: IntArray) -> dict[str, Any]:
    """Scores of a validation of classes from counts (classes, 3): macro F1 and accuracy."""
    return {"f1": macro_f1(counts), "accuracy": accuracy(counts)}


def all_class_scores(counts: IntArray, labels: Sequence[str]) -> dict[str, Any]:
    """All scores of a test set from counts (classes, 3): `f1`, `precision` and `recall` are macro."""
    occurs = counts.sum(axis=-1) > 0
    return {
        "f1": float(macro_f1(counts)),
        "precision": float(precision(counts)[occurs].mean()),
        "recall": float(recall(counts)[occurs].mean()),
        "accuracy": float(accuracy(counts)),
        "micro_f1": float(micro_f1(counts)),
        "weighted_f1": float(weighted_f1(counts)),
        "per_class": by_name(labels, counts),
    }


def count_labels(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]) -> IntArray:
    """Counts of each text and label: (texts, labels, 3) of tp, fp, fn; `ValueError` as `count_classes`."""
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} texts but {len(predicted)} predictions")
    index = _numbers({label for side in (gold, predicted) for one in side for label in one}, labels)
    counts = np.zeros((len(gold), len(labels), 3), dtype=np.int64)
    for text, (wanted, found) in enumerate(zip(map(set, gold), map(set, predicted), strict=True)):
        for place, some in enumerate((wanted & found, found - wanted, wanted - found)):
            counts[text, [index[label] for label in some], place] = 1
    return counts


def _numbers(used: Collection[str], labels: Sequence[str]) -> dict[str, int]:
    if unknown := set(used).difference(labels):
        raise ValueError(f"labels {sorted(unknown)} are not among {list(labels)}")
    return {label: number for number, label in enumerate(labels)}


def count_thresholds(gold: IntArray, probabilities: NDArray[np.floating]) -> IntArray:
    """Counts by which the threshold of a validation is chosen, however it is divided into batches and ranks.

    Whether each label holds (0 or 1), and its probability, both (texts, labels), give (labels, 2, thresholds + 1): by
    whether it holds, and how many of `THRESHOLDS` are reached. What is not a number reaches none, as in prediction.
    """
    labels, reached = gold.shape[1], len(THRESHOLDS) + 1
    places = np.searchsorted(THRESHOLDS, np.nan_to_num(probabilities.astype(np.float64)), side="right")
    cells = (np.arange(labels) * 2 + gold) * reached + places
    return np.bincount(cells.ravel(), minlength=labels * 2 * reached).reshape(labels, 2, reached)


def threshold_scores(counts: IntArray) -> dict[str, Any]:
    """Scores of a validation of labels at the threshold with the highest micro F1, from `count_thresholds`, summed.

    `f1`, `precision` and `recall` are micro; `threshold` is one for all labels: one for each would be fitted to the few
    texts of a rare label. Of equal ones it is that nearest to 0.5, of two as near the lower one.
    """
    by_threshold = _by_threshold(counts)
    tried = micro_f1(by_threshold)
    best = np.flatnonzero(tried == tried.max())
    chosen = best[np.argmin(np.abs(best - len(THRESHOLDS) // 2))]
    micro = by_threshold[chosen].sum(axis=0)
    found = {"f1": tried[chosen], "precision": precision(micro), "recall": recall(micro)}
    return {**found, "macro_f1": macro_f1(by_threshold[chosen]), "threshold": THRESHOLDS[chosen]}


def f1_by_threshold(counts: IntArray) -> dict[str, Any]:
    """Micro F1 at each of `THRESHOLDS`, by `threshold_name`, from `count_thresholds`, summed."""
    return dict(zip(map(threshold_name, THRESHOLDS), micro_f1(_by_threshold(counts)), strict=True))


def threshold_name(threshold: float) -> str:
    """A threshold in two digits: "0.50"."""
    return f"{threshold:.2f}"


def _by_threshold(counts: IntArray) -> IntArray:
    """(thresholds, labels, 3) of tp, fp, fn, from `count_thresholds`, summed."""
    above = counts[:, :, ::-1].cumsum(axis=-1)[:, :, ::-1][:, :, 1:]  # texts that reach each threshold
    false_positive, true_positive = above[:, 0], above[:, 1]
    false_negative = counts[:, 1].sum(axis=-1, keepdims=True) - true_positive
    return np.stack([true_positive, false_positive, false_negative], axis=-1).swapaxes(0, 1)
