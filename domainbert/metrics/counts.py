"""Precision, recall and F1 from counts, arrays whose last axis is (tp, fp, fn).

Counts are first summed over sentences, batches and documents; F1 is never averaged over them. A ratio with denominator
0 is 0, as in seqeval; in bootstrap draws a score with denominator 0 is NaN (`undefined_as_nan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_UNDEFINED = ContextVar("undefined", default=0.0)  # value of an undefined score


@contextmanager
def undefined_as_nan() -> Iterator[None]:
    """Context manager in which undefined scores are NaN instead of 0: ratios of 0 / 0, correlations of equal numbers.

    For bootstrap draws: an undefined score is no score of 0. Precision, recall and F1 of a label stay 0, so that macro
    F1 is NaN only if no label occurs.
    """
    token = _UNDEFINED.set(np.nan)
    try:
        yield
    finally:
        _UNDEFINED.reset(token)


def precision(counts: NDArray) -> FloatArray:
    """Return the precision, tp / (tp + fp). Counts (..., 3) give (...)."""
    return _ratio(counts[..., 0], counts[..., 0] + counts[..., 1])


def recall(counts: NDArray) -> FloatArray:
    """Return the recall, tp / (tp + fn). Counts (..., 3) give (...)."""
    return _ratio(counts[..., 0], counts[..., 0] + counts[..., 2])


def f1(counts: NDArray) -> FloatArray:
    """Return F1, 2 tp / (2 tp + fp + fn), the harmonic mean of precision and recall. Counts (..., 3) give (...)."""
    return _ratio(2 * counts[..., 0], 2 * counts[..., 0] + counts[..., 1] + counts[..., 2])


def micro_f1(counts: NDArray) -> FloatArray:
    """Return the F1 of the counts summed over labels. Counts (..., labels, 3) give (...).

    >>> from domainbert import count_classes, micro_f1
    >>> float(micro_f1(count_classes(["a", "b"], ["a", "a"], ["a", "b"]).sum(axis=0)))
    0.5
    """
    tp, fp, fn = np.moveaxis(counts.sum(axis=-2), -1, 0)
    return divide_or_undefined(2 * tp, 2 * tp + fp + fn)


def macro_f1(counts: NDArray) -> FloatArray:
    """Return the mean of the F1 of the labels that occur. Counts (..., labels, 3) give (...).

    A label without gold and predicted items is excluded, as in scikit-learn without `labels`. 0 if no label occurs.

    >>> from domainbert import count_classes, macro_f1
    >>> round(float(macro_f1(count_classes(["a", "b"], ["a", "a"], ["a", "b"]).sum(axis=0))), 3)
    0.333
    """
    occurs = counts.sum(axis=-1) > 0
    return divide_or_undefined(f1(counts).sum(axis=-1), occurs.sum(axis=-1))


def weighted_f1(counts: NDArray) -> FloatArray:
    """Return the mean of the F1 of the labels, weighted by gold support (tp + fn). Counts (..., labels, 3) give
    (...)."""
    support = counts[..., 0] + counts[..., 2]
    return divide_or_undefined((f1(counts) * support).sum(axis=-1), support.sum(axis=-1))


def accuracy(counts: NDArray) -> FloatArray:
    """Return the share of texts with the correct class; counts (..., classes, 3) of texts with one class give (...)."""
    return recall(counts.sum(axis=-2))  # a correct text is one tp, a wrong text one fn and one fp


def scores(counts: NDArray) -> dict[str, float]:
    """Return `precision`, `recall` and `f1` of counts (3,)."""
    return {"precision": float(precision(counts)), "recall": float(recall(counts)), "f1": float(f1(counts))}


def scores_by_name(names: Sequence[str], counts: NDArray) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and gold `support` (tp + fn) of each row of `counts` (names, 3)."""
    return {name: {**scores(row), "support": int(row[0] + row[2])} for name, row in zip(names, counts, strict=True)}


def score_counts(statistics: Mapping[str, Callable[[NDArray], FloatArray]], counts: NDArray) -> dict[str, float]:
    """Return the scores of summed counts, by the names of the statistics."""
    return {name: float(statistic(counts)) for name, statistic in statistics.items()}


def count_slices(gold: Set[Any], predicted: Set[Any], num_slices: int, slice_of: Callable[[Any], int]) -> IntArray:
    """Return counts (slices, 3) of tp, fp, fn of two sets of items, grouped by the slice index of each item."""
    outcomes = gold & predicted, predicted - gold, gold - predicted
    counts = [np.bincount([slice_of(item) for item in items], minlength=num_slices) for items in outcomes]
    return np.stack(counts, axis=-1)


def f1_of_sets(gold: Sequence[Set[Any]], predicted: Sequence[Set[Any]]) -> float:
    """Return the micro F1 of sets of labels, one set per item; 0 if all sets are empty."""
    correct = sum(len(labels & predicted_labels) for labels, predicted_labels in zip(gold, predicted, strict=True))
    return 2 * correct / max(sum(map(len, gold)) + sum(map(len, predicted)), 1)


def divide_or_undefined(numerator: NDArray, denominator: NDArray) -> FloatArray:
    """Return numerator / denominator, arrays of equal shape; where the denominator is not positive, 0, or NaN within
    `undefined_as_nan`."""
    undefined = np.full(np.shape(denominator), _UNDEFINED.get())
    return np.divide(numerator, denominator, out=undefined, where=denominator > 0)


def _ratio(numerator: NDArray, denominator: NDArray) -> FloatArray:
    return np.divide(numerator, denominator, out=np.zeros(np.shape(denominator)), where=denominator != 0)
