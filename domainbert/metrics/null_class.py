"""Scores of classes with a null class: `O` for words, or "no relation" for pairs of entities.

The null class is excluded from macro F1 (SciBERT's score for EBM-NLP: Beltagy et al. 2019, arXiv:1903.10676, section
3.2) and micro F1 (TACRED: Zhang et al. 2017, section 5), and included in the accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.counts import FloatArray, macro_f1, micro_f1, recall


def without_null_class(counts: NDArray[Any], classes: Sequence[str], null_class: str | None) -> NDArray[Any]:
    """Return counts (..., classes, 3) without the null class `null_class` (None: there is none), and with a last row.

    The last row is the sum over all classes, in which every item is one true positive, or one false positive and one
    false negative.
    """
    kept_classes = [number for number, name in enumerate(classes) if name != null_class]
    return np.concatenate([counts[..., kept_classes, :], counts.sum(axis=-2, keepdims=True)], axis=-2)


def macro_f1_without_null(counts: NDArray[Any]) -> FloatArray:
    """Return the macro F1 without the null class, from counts of `without_null_class` (..., rows, 3): (...)."""
    return macro_f1(counts[..., :-1, :])


def micro_f1_without_null(counts: NDArray[Any]) -> FloatArray:
    """Return the micro F1 without the null class, from counts of `without_null_class` (..., rows, 3): (...).

    It is equal to the accuracy if there is no null class.
    """
    return micro_f1(counts[..., :-1, :])


def _accuracy(counts: NDArray[Any]) -> FloatArray:
    return recall(counts[..., -1, :])


STATISTICS = {"macro_f1": macro_f1_without_null, "micro_f1": micro_f1_without_null, "accuracy": _accuracy}
"""Functions from counts of `without_null_class` to scores, by name."""


def scores_without_null(counts: NDArray[Any]) -> dict[str, Any]:
    """Return the validation scores of counts of `without_null_class` (rows, 3)."""
    return {name: statistic(counts) for name, statistic in STATISTICS.items()}
