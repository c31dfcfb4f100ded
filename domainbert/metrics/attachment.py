"""Attachment scores of dependency trees, from counts.

UAS is the share of words with the correct head, LAS the share with the correct head and label. Over all words they are
equal to conll18_ud_eval.py of CoNLL 2018, which compares labels up to a colon, with gold words; without punctuation
they are equal to the scores of AllenNLP and SciBERT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import SummedStatistic
from domainbert.metrics.counts import FloatArray, IntArray, count_slices, divide_or_undefined

Arc = tuple[int, str]
"""Head of a word (from 1; 0 is the root) and label."""

Trees = Sequence[Sequence[Arc]]
"""Arcs of the words of each sentence."""

LENGTHS = ("root", "1", "2", "3-6", ">6")
"""Slices (groups of arcs) by distance from word to head."""

_MAX_DISTANCES = (0, 1, 2, 6)  # maximum distance in each slice except the last; 0 is the root

_PlacedArc = tuple[int, int, int, str]  # sentence from 0, word from 1, head, label


def count_arcs(gold: Trees, predicted: Trees, punctuation: Sequence[Sequence[bool]]) -> IntArray:
    """Return the counts of correct arcs per sentence: (sentences, 3, 3).

    Rows: words, words without punctuation, trees. Columns: all, correct heads, correct heads and labels.
    """
    counts = np.zeros((len(gold), 3, 3), dtype=np.int64)
    for matrix, gold_arcs, arcs, is_punctuation in zip(counts, gold, predicted, punctuation, strict=True):
        pairs = zip(gold_arcs, arcs, strict=True)
        # (words, 3): the columns above, for each word
        correct = np.array([(True, gold_arc[0] == arc[0], tuple(gold_arc) == tuple(arc)) for gold_arc, arc in pairs])
        matrix[0] = correct.sum(axis=0)
        matrix[1] = correct[~np.array(is_punctuation, dtype=bool)].sum(axis=0)  # a list without words has no type
        matrix[2] = correct.all(axis=0)
    return counts


def _ratio_of(row: int, column: int) -> SummedStatistic:
    """Divide `column` of `row` of the counts (..., 3, 3) of `count_arcs` by the first column, the number of words or
    trees; undefined if this number is 0."""

    def share(counts: NDArray[Any]) -> FloatArray:
        return divide_or_undefined(counts[..., row, column], counts[..., row, 0])

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


def count_by_label(gold: Trees, predicted: Trees, labels: Sequence[str]) -> IntArray:
    """Return the counts of arcs by label: (labels, 3) of tp, fp, fn; head and label must be correct."""
    label_ids = {label: number for number, label in enumerate(labels)}
    return count_slices(*_arc_sets(gold, predicted), len(labels), lambda arc: label_ids[arc[3]])  # [3]: the label


def count_by_length(gold: Trees, predicted: Trees) -> IntArray:
    """Return the counts of arcs by distance from word to head: (lengths, 3) of tp, fp, fn in the order of `LENGTHS`.

    Labels are ignored. Slices sum to the whole, because a correct arc has the same length in gold and prediction.
    """
    gold_heads, heads = ({arc[:3] for arc in arcs} for arcs in _arc_sets(gold, predicted))  # without labels
    return count_slices(gold_heads, heads, len(LENGTHS), _length_slice)


def _length_slice(arc: tuple[int, int, int]) -> int:
    _, word, head = arc
    if head == 0:
        return 0  # "root"
    return int(np.searchsorted(_MAX_DISTANCES, abs(word - head)))


def _arc_sets(gold: Trees, predicted: Trees) -> tuple[set[_PlacedArc], set[_PlacedArc]]:
    gold_arcs: set[_PlacedArc] = set()
    arcs: set[_PlacedArc] = set()
    for sentence, (gold_tree, tree) in enumerate(zip(gold, predicted, strict=True)):
        for word, (gold_arc, arc) in enumerate(zip(gold_tree, tree, strict=True), 1):
            gold_arcs.add((sentence, word, *gold_arc))
            arcs.add((sentence, word, *arc))
    return gold_arcs, arcs
