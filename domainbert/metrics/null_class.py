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


def without_null_class(counts: NDArray[Any], classes: Sequence[str], nothing: str | None) -> NDArray[Any]:
    """Remove the null class `nothing` from counts (..., classes, 3) and append their sum over all classes.

    In the last row every item is one true positive, or one false positive and one false negative.
    """
    rows = [number for number, name in enumerate(classes) if name != nothing]
    return np.concatenate([counts[..., rows, :], counts.sum(axis=-2, keepdims=True)], axis=-2)


def macro_f1_without_null(counts: NDArray[Any]) -> FloatArray:
    """Macro F1 without the null class, from `meaningful` counts (..., rows, 3): (...)."""
    return macro_f1(counts[..., :-1, :])


def micro_f1_without_null(counts: NDArray[Any]) -> FloatArray:
    """Micro F1 without the null class, from `meaningful` counts; without a null class equal to the accuracy."""
    return micro_f1(counts[..., :-1, :])


def _accuracy(counts: NDArray[Any]) -> FloatArray:
    return recall(counts[..., -1, :])


STATISTICS = {"macro_f1": macro_f1_without_null, "micro_f1": micro_f1_without_null, "accuracy": _accuracy}
"""Scores of `meaningful` counts, by name."""


def scores_without_null(counts: NDArray[Any]) -> dict[str, Any]:
    """Return the validation scores of `meaningful` counts (rows, 3)."""
    return {name: statistic(counts) for name, statistic in STATISTICS.items()}
