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
_LONGEST = (0, 1, 2, 6)  # maximum distance from word to head in each slice except the last; 0 is the root


def count_arcs(gold: Trees, predicted: Trees, punctuation: Sequence[Sequence[bool]]) -> IntArray:
    """Count correct arcs per sentence: (sentences, 3, 3).

    Rows: words, words without punctuation, trees. Columns: all, correct heads, correct heads and labels.
    """
    counts = np.zeros((len(gold), 3, 3), dtype=np.int64)
    for matrix, gold_arcs, arcs, ignored in zip(counts, gold, predicted, punctuation, strict=True):
        pairs = zip(gold_arcs, arcs, strict=True)
        correct = np.array([(True, gold_arc[0] == arc[0], gold_arc == arc) for gold_arc, arc in pairs])
        matrix[:] = correct.sum(axis=0), correct[~np.array(ignored)].sum(axis=0), correct.all(axis=0)
    return counts


def _share(row: int, column: int) -> SummedStatistic:
    def share(counts: NDArray[Any]) -> FloatArray:
        correct, total = counts[..., row, column], counts[..., row, 0]
        return np.divide(correct, total, out=np.zeros(np.shape(total)), where=total != 0)

    return share


ATTACHMENT: Mapping[str, SummedStatistic] = {
    "las": _share(0, 2),
    "uas": _share(0, 1),
    "las_no_punctuation": _share(1, 2),
    "uas_no_punctuation": _share(1, 1),
    "exact": _share(2, 2),
}
"""Scores of counts (..., 3, 3); `exact` is the share of sentences with only correct heads and labels."""


def attachment_scores(counts: IntArray) -> dict[str, float]:
    """Return all scores of counts (3, 3), by name."""
    return {name: float(score(counts)) for name, score in ATTACHMENT.items()}


def count_by_label(gold: Trees, predicted: Trees, labels: Sequence[str]) -> IntArray:
    """Count arcs by label: (labels, 3) of tp, fp, fn; head and label must be correct."""
    index = {label: number for number, label in enumerate(labels)}
    return _count(gold, predicted, len(labels), lambda _, arc: index[arc[1]], lambda arc: arc)


def count_by_length(gold: Trees, predicted: Trees) -> IntArray:
    """Count arcs by distance from word to head: (lengths, 3) of tp, fp, fn in the order of `LENGTHS`. Labels are
    ignored. Slices sum to the whole, because a correct arc has the same length in gold and prediction."""
    return _count(gold, predicted, len(LENGTHS), _slice_of_length, lambda arc: arc[0])


def _slice_of_length(word: int, arc: Arc) -> int:
    return int(np.searchsorted(_LONGEST, abs(word - arc[0]))) if arc[0] else 0


def _count(
    gold: Trees, predicted: Trees, num_slices: int, slice_of: Callable[[int, Arc], int], part: Callable[[Arc], Any]
) -> IntArray:
    """Counts (slices, 3) of arcs; `part` selects what must be equal."""
    counts = np.zeros((num_slices, 3), dtype=np.int64)
    for gold_arcs, arcs in zip(gold, predicted, strict=True):
        for word, (gold_arc, arc) in enumerate(zip(gold_arcs, arcs, strict=True), 1):
            if part(gold_arc) == part(arc):
                counts[slice_of(word, gold_arc), 0] += 1
            else:
                counts[slice_of(word, arc), 1] += 1
                counts[slice_of(word, gold_arc), 2] += 1
    return counts
