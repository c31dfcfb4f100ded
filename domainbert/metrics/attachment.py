"""Attachment scores of dependency trees, from counts.

UAS is the share of words with the right head, LAS of those whose arc also has the right label. With every word, and the
words those of gold, they are the UAS and LAS of CoNLL 2018's evaluation, which compares labels up to a colon
(conll18_ud_eval.py); without punctuation, those of AllenNLP and SciBERT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import SummedStatistic
from domainbert.metrics.counts import FloatArray, IntArray

Arc = tuple[int, str]
"""The head of a word, from 1 or 0 for the root, and the label."""

Trees = Sequence[Sequence[Arc]]
"""The arcs of each word of each sentence."""

LENGTHS = ("root", "1", "2", "3-6", ">6")
_LONGEST = (0, 1, 2, 6)  # words from dependent to head in each slice but the last; 0 is the root


def count_arcs(gold: Trees, predicted: Trees, punctuation: Sequence[Sequence[bool]]) -> IntArray:
    """Counts of each sentence: (sentences, 3, 3).

    Rows are words, words that are no punctuation, and trees; columns all of them, those with the right heads, and those
    with the right heads and labels.
    """
    counts = np.zeros((len(gold), 3, 3), dtype=np.int64)
    for one, wanted, found, ignored in zip(counts, gold, predicted, punctuation, strict=True):
        pairs = zip(wanted, found, strict=True)
        right = np.array([(True, arc[0] == other[0], arc == other) for arc, other in pairs])
        one[:] = right.sum(axis=0), right[~np.array(ignored)].sum(axis=0), right.all(axis=0)
    return counts


def _share(row: int, column: int) -> SummedStatistic:
    def share(counts: NDArray[Any]) -> FloatArray:
        right, number = counts[..., row, column], counts[..., row, 0]
        return np.divide(right, number, out=np.zeros(np.shape(number)), where=number != 0)

    return share


ATTACHMENT: Mapping[str, SummedStatistic] = {
    "las": _share(0, 2),
    "uas": _share(0, 1),
    "las_no_punctuation": _share(1, 2),
    "uas_no_punctuation": _share(1, 1),
    "exact": _share(2, 2),
}
"""The scores of counts (..., 3, 3); `exact` is the share of sentences whose heads and labels are all right."""


def attachment_scores(counts: IntArray) -> dict[str, float]:
    """All of them by name, of counts (3, 3)."""
    return {name: float(score(counts)) for name, score in ATTACHMENT.items()}


def count_by_label(gold: Trees, predicted: Trees, labels: Sequence[str]) -> IntArray:
    """Counts of labelled arcs: (labels, 3) of tp, fp, fn; an arc is right with its head and its label."""
    place = {label: number for number, label in enumerate(labels)}
    return _count(gold, predicted, len(labels), lambda _, arc: place[arc[1]], lambda arc: arc)


def count_by_length(gold: Trees, predicted: Trees) -> IntArray:
    """Counts of arcs, whatever their label, by the distance from word to head: (lengths, 3) of tp, fp, fn in the order
    of `LENGTHS`. An arc that is right is as long in gold as in the prediction, so the slices sum to the whole."""
    return _count(gold, predicted, len(LENGTHS), _slice_of_length, lambda arc: arc[0])


def _slice_of_length(word: int, arc: Arc) -> int:
    return int(np.searchsorted(_LONGEST, abs(word - arc[0]))) if arc[0] else 0


def _count(
    gold: Trees, predicted: Trees, num_slices: int, slice_of: Callable[[int, Arc], int], part: Callable[[Arc], Any]
) -> IntArray:
    """Counts (slices, 3) of arcs, of which a `part` has to be right."""
    counts = np.zeros((num_slices, 3), dtype=np.int64)
    for wanted, found in zip(gold, predicted, strict=True):
        for word, (arc, other) in enumerate(zip(wanted, found, strict=True), 1):
            if part(arc) == part(other):
                counts[slice_of(word, arc), 0] += 1
            else:
                counts[slice_of(word, other), 1] += 1
                counts[slice_of(word, arc), 2] += 1
    return counts
