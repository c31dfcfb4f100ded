"""Counts and scores of items with one class, with or without a null class, or with any number of labels.

Macro F1 is the mean over the labels that occur in gold or prediction: a label of the training set that does not occur
would only lower the mean.

A null class is `O` for words, or "no relation" for pairs of entities. It is excluded from macro F1 (SciBERT's score for
EBM-NLP: Beltagy et al. 2019, arXiv:1903.10676, section 3.2) and micro F1 (TACRED: Zhang et al. 2017, section 5), and
included in the accuracy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import SummedStatistic
from domainbert.metrics.counts import (
    IntArray,
    accuracy,
    macro_f1,
    micro_f1,
    precision,
    recall,
    scores_by_name,
    weighted_f1,
)

THRESHOLDS = np.arange(1, 100) / 100
"""Candidate thresholds of the probability of a label: 0.01 to 0.99."""


def count_classes(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> IntArray:
    """Return the counts by text and class: (texts, classes, 3) of tp, fp, fn.

    A wrong text is a false negative of its class and a false positive of the predicted class. Raise `ValueError` for
    different lengths or unknown labels.

    >>> from domainbert import count_classes
    >>> count_classes(["a", "b"], ["a", "a"], ["a", "b"]).sum(axis=0).tolist()  # tp, fp, fn of each class
    [[1, 1, 0], [0, 0, 1]]
    """
    if len(gold) != len(predicted):
        raise ValueError(f"predicted: found length {len(predicted)}; expected {len(gold)}, as in gold")
    index = _label_ids({*gold, *predicted}, labels)
    gold_ids, ids = (np.array([index[label] for label in side], dtype=np.int64) for side in (gold, predicted))
    return count_class_ids(gold_ids, ids, len(labels))


def count_class_ids(gold: IntArray, predicted: IntArray, num_classes: int) -> IntArray:
    """Return the counts of `count_classes` (texts, classes, 3) from two arrays of class ids (texts,)."""
    counts = np.zeros((len(gold), num_classes, 3), dtype=np.int64)
    text = np.arange(len(gold))
    wrong = gold != predicted
    outcome = np.where(wrong, 2, 0)  # column of a false negative or of a true positive
    counts[text, gold, outcome] = 1
    counts[text[wrong], predicted[wrong], 1] = 1  # column 1, false positive
    return counts


CLASS_STATISTICS: Mapping[str, SummedStatistic] = {"f1": macro_f1, "accuracy": accuracy}
"""Functions from counts of `count_classes` to scores, by name."""


def all_class_scores(counts: IntArray, labels: Sequence[str]) -> dict[str, Any]:
    """Return all test scores of counts (classes, 3).

    `f1`, `precision` and `recall` are means over the classes that occur in gold or prediction.
    """
    occurs = counts.sum(axis=-1) > 0
    return {
        "f1": float(macro_f1(counts)),
        "precision": float(precision(counts)[occurs].mean()),
        "recall": float(recall(counts)[occurs].mean()),
        "accuracy": float(accuracy(counts)),
        "micro_f1": float(micro_f1(counts)),
        "weighted_f1": float(weighted_f1(counts)),
        "per_class": scores_by_name(labels, counts),
    }


def without_null_class(counts: NDArray[Any], classes: Sequence[str], null_class: str | None) -> NDArray[Any]:
    """Return counts (..., classes, 3) without the null class, and with the sum over all classes as a last row.

    The last row counts each item with the correct class as a true positive, and each other item as a false positive and
    a false negative. All classes are kept if `null_class` is None.
    """
    other_classes = [number for number, name in enumerate(classes) if name != null_class]
    return np.concatenate([counts[..., other_classes, :], counts.sum(axis=-2, keepdims=True)], axis=-2)


NULL_CLASS_STATISTICS: Mapping[str, SummedStatistic] = {
    "macro_f1": lambda counts: macro_f1(counts[..., :-1, :]),
    "micro_f1": lambda counts: micro_f1(counts[..., :-1, :]),
    "accuracy": lambda counts: recall(counts[..., -1, :]),
}
"""Functions from counts of `without_null_class` to scores, by name. Without a null class, micro F1 is the accuracy."""


def count_labels(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]) -> IntArray:
    """Return the counts by text and label: (texts, labels, 3) of tp, fp, fn.

    Raise `ValueError` for different lengths or unknown labels.
    """
    if len(gold) != len(predicted):
        raise ValueError(f"predicted: found length {len(predicted)}; expected {len(gold)}, as in gold")
    index = _label_ids({label for side in (gold, predicted) for text_labels in side for label in text_labels}, labels)
    counts = np.zeros((len(gold), len(labels), 3), dtype=np.int64)
    for text, (gold_set, predicted_set) in enumerate(zip(map(set, gold), map(set, predicted), strict=True)):
        outcomes = gold_set & predicted_set, predicted_set - gold_set, gold_set - predicted_set  # tp, fp, fn
        for column, subset in enumerate(outcomes):
            counts[text, [index[label] for label in subset], column] = 1
    return counts


def _label_ids(used: Collection[str], labels: Sequence[str]) -> dict[str, int]:
    if unknown := set(used).difference(labels):
        raise ValueError(f"labels: found {list(labels)}; expected also {sorted(unknown)}, as in gold or predicted")
    return {label: number for number, label in enumerate(labels)}


def count_thresholds(gold: IntArray, probabilities: NDArray[np.floating]) -> IntArray:
    """Return the counts that determine the best threshold: (labels, 2, thresholds + 1).

    They count texts by gold value (0 or 1) and by the number of `THRESHOLDS` that the probability reaches, and can be
    summed over batches and ranks. `gold` and `probabilities` are (texts, labels). NaN reaches no threshold, as in
    prediction.
    """
    num_labels, columns = gold.shape[1], len(THRESHOLDS) + 1
    num_reached = np.searchsorted(THRESHOLDS, np.nan_to_num(probabilities.astype(np.float64)), side="right")
    cells = (np.arange(num_labels) * 2 + gold) * columns + num_reached  # indices in the flattened result
    return np.bincount(cells.ravel(), minlength=num_labels * 2 * columns).reshape(num_labels, 2, columns)


def threshold_scores(counts: IntArray) -> dict[str, Any]:
    """Return the validation scores at the threshold with the highest micro F1, from summed `count_thresholds`.

    `f1`, `precision` and `recall` are micro averages. All labels share the `threshold`, because a threshold per label
    would overfit the few texts of rare labels. Ties: the threshold nearest to 0.5, then the lower one.
    """
    by_threshold = _counts_by_threshold(counts)
    f1 = micro_f1(by_threshold)
    best = np.flatnonzero(f1 == f1.max())
    middle = len(THRESHOLDS) // 2  # index of 0.5
    best_index = best[np.argmin(np.abs(best - middle))]
    micro = by_threshold[best_index].sum(axis=0)
    scores = {"f1": f1[best_index], "precision": precision(micro), "recall": recall(micro)}
    return {**scores, "macro_f1": macro_f1(by_threshold[best_index]), "threshold": THRESHOLDS[best_index]}


def f1_by_threshold(counts: IntArray) -> dict[str, Any]:
    """Return the micro F1 at each of `THRESHOLDS`, by `threshold_name`, from summed `count_thresholds`."""
    return dict(zip(map(threshold_name, THRESHOLDS), micro_f1(_counts_by_threshold(counts)), strict=True))


def threshold_name(threshold: float) -> str:
    """Return a threshold with two digits: "0.50"."""
    return f"{threshold:.2f}"


def _counts_by_threshold(counts: IntArray) -> IntArray:
    """Return the counts (thresholds, labels, 3) of tp, fp, fn, from summed `count_thresholds`."""
    # sums from the right: a probability that reaches k thresholds reaches the first, second, ..., k-th threshold
    from_right = counts[:, :, ::-1].cumsum(axis=-1)[:, :, ::-1]  # texts that reach at least 0, 1, 2, ... thresholds
    num_reaching = from_right[:, :, 1:]  # (labels, 2, thresholds)
    false_positive, true_positive = num_reaching[:, 0], num_reaching[:, 1]
    false_negative = counts[:, 1].sum(axis=-1, keepdims=True) - true_positive
    return np.stack([true_positive, false_positive, false_negative], axis=-1).swapaxes(0, 1)
