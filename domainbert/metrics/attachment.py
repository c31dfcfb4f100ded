"""Attachment scores of dependency trees, from counts.

UAS is the share of words with the correct head, LAS the share with the correct head and label. Over all words they are
equal to conll18_ud_eval.py of CoNLL 2018, which compares labels up to a colon, with gold words; without punctuation
they are equal to the scores of AllenNLP and SciBERT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import SummedStatistic
from domainbert.metrics.counts import FloatArray, IntArray

Arc = tuple[int, str]
"""Head of a word (from 1; 0 is the root) and label."""

Trees = Sequence[Sequence[Arc]]
"""Arcs of the words of each sentence."""

LENGTHS = ("root", "1", "2", "3-6", ">6")
"""Slices (groups of arcs) by distance from word to head."""

_MAX_DISTANCES = (0, 1, 2, 6)  # maximum distance in each slice except the last; 0 is the root


def count_arcs(gold: Trees, predicted: Trees, punctuation: Sequence[Sequence[bool]]) -> IntArray:
    """Return the counts of correct arcs per sentence: (sentences, 3, 3).

    Rows: words, words without punctuation, trees. Columns: all, correct heads, correct heads and labels.
    """
    counts = np.zeros((len(gold), 3, 3), dtype=np.int64)
    for matrix, gold_arcs, arcs, ignored in zip(counts, gold, predicted, punctuation, strict=True):
        pairs = zip(gold_arcs, arcs, strict=True)
        correct = np.array([(True, gold_arc[0] == arc[0], gold_arc == arc) for gold_arc, arc in pairs])
        matrix[:] = correct.sum(axis=0), correct[~np.array(ignored)].sum(axis=0), correct.all(axis=0)
    return counts


def _ratio_of(row: int, column: int) -> SummedStatistic:
    """Return the score that divides a column of the row by its first column; 0 if the latter is 0."""

    def share(counts: NDArray[Any]) -> FloatArray:
        correct, total = counts[..., row, column], counts[..., row, 0]
        return np.divide(correct, total, out=np.zeros(np.shape(total)), where=total != 0)

    return share


ATTACHMENT: Mapping[str, SummedStatistic] = {
    "las": _ratio_of(0, 2),
    "uas": _ratio_of(0, 1),
    "las_no_punctuation": _ratio_of(1, 2),
    "uas_no_punctuation": _ratio_of(1, 1),
    "exact": _ratio_of(2, 2),
}
"""Functions from counts (..., 3, 3) to scores (...), by name; `exact` is the share of sentences with only correct heads
and labels."""


def attachment_scores(counts: IntArray) -> dict[str, float]:
    """Return all scores of counts (3, 3), by name."""
    return {name: float(score(counts)) for name, score in ATTACHMENT.items()}


def count_by_label(gold: Trees, predicted: Trees, labels: Sequence[str]) -> IntArray:
    """Return the counts of arcs by label: (labels, 3) of tp, fp, fn; head and label must be correct."""
    label_ids = {label: number for number, label in enumerate(labels)}
    return _count_by_slice(gold, predicted, len(labels), lambda _, arc: label_ids[arc[1]], lambda arc: arc)


def count_by_length(gold: Trees, predicted: Trees) -> IntArray:
    """Return the counts of arcs by distance from word to head: (lengths, 3) of tp, fp, fn in the order of `LENGTHS`.

    Labels are ignored. Slices sum to the whole, because a correct arc has the same length in gold and prediction.
    """
    return _count_by_slice(gold, predicted, len(LENGTHS), _length_slice, lambda arc: arc[0])


def _length_slice(word: int, arc: Arc) -> int:
    return int(np.searchsorted(_MAX_DISTANCES, abs(word - arc[0]))) if arc[0] else 0


def _count_by_slice(
    gold: Trees,
    predicted: Trees,
    num_slices: int,
    slice_index: Callable[[int, Arc], int],
    compared_part: Callable[[Arc], Any],
) -> IntArray:
    """Return counts (slices, 3) of tp, fp, fn; an arc is correct if its `compared_part` is equal in gold and
    prediction."""
    counts = np.zeros((num_slices, 3), dtype=np.int64)
    for gold_arcs, arcs in zip(gold, predicted, strict=True):
        for word, (gold_arc, arc) in enumerate(zip(gold_arcs, arcs, strict=True), 1):
            if compared_part(gold_arc) == compared_part(arc):
                counts[slice_index(word, gold_arc), 0] += 1
            else:
                counts[slice_index(word, arc), 1] += 1
                counts[slice_index(word, gold_arc), 2] += 1
    return counts
