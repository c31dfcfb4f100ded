"""Scores of classes of which one may mean nothing: `O` of the labels of words, a pair of entities without a relation.

What means nothing is no class of its own, neither in the mean over classes (SciBERT's score of EBM-NLP: Beltagy et al.
2019, arXiv:1903.10676, section 3.2) nor in the sums of micro F1 (TACRED: Zhang et al. 2017, section 5); to be right
about it counts in the accuracy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.counts import FloatArray, macro_f1, micro_f1, recall


def meaningful(counts: NDArray[Any], classes: Sequence[str], nothing: str | None) -> NDArray[Any]:
    """Counts (..., classes, 3) of items with one class each, without the one that means `nothing`, if it is there.

    A last row is added, in which every item is a true positive, or a false positive and a false negative.
    """
    kept = [number for number, name in enumerate(classes) if name != nothing]
    return np.concatenate([counts[..., kept, :], counts.sum(axis=-2, keepdims=True)], axis=-2)


def meaningful_macro_f1(counts: NDArray[Any]) -> FloatArray:
    """Mean of the F1 of the classes that occur and mean something, from `meaningful` counts (..., rows, 3): (...)."""
    return macro_f1(counts[..., :-1, :])


def meaningful_micro_f1(counts: NDArray[Any]) -> FloatArray:
    """F1 of the counts summed over the classes that mean something; the accuracy where all of them do."""
    return micro_f1(counts[..., :-1, :])


def share_right(counts: NDArray[Any]) -> FloatArray:
    """The accuracy over all items, those that mean nothing among them."""
    return recall(counts[..., -1, :])


STATISTICS = {"macro_f1": meaningful_macro_f1, "micro_f1": meaningful_micro_f1, "accuracy": share_right}
"""The scores by name, each of `meaningful` counts."""


def meaningful_scores(counts: NDArray[Any]) -> dict[str, Any]:
    """The scores of a validation from `meaningful` counts (rows, 3)."""
    return {name: statistic(counts) for name, statistic in STATISTICS.items()}
