"""Errors of an entity tagger: their kinds, and scores by entity length and by novelty.

Gold and predicted entities are paired one to one where they overlap, the same type first. A pair is correct, or wrong
in its boundary, its type, or both; unpaired gold is missed, an unpaired prediction spurious. So
correct + boundary + type + boundary and type + missed are the gold entities, and with spurious instead of missed the
predictions.

An entity is seen when training holds the same surface (its words joined by spaces, case kept) with the same type.
Length and novelty belong to gold and predicted entities alike and are equal in a strict match, so that each slice has
its own tp, fp and fn and the slices sum to the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set

import numpy as np

from domainbert.metrics.counts import IntArray
from domainbert.metrics.entities import SentenceSpans, Span, match_overlapping

ERROR_KINDS = ("correct", "boundary", "type", "boundary and type", "missed", "spurious")
LENGTHS = ("1", "2", "3-4", "5-8", ">8")
NOVELTY = ("seen", "unseen")
_LONGEST = (1, 2, 4, 8)  # words of the longest entity of each length slice but the last

Surface = tuple[str, str]  # words, type


def error_kinds(gold: SentenceSpans, predicted: SentenceSpans) -> dict[str, int]:
    """Number of entities of each of `ERROR_KINDS`."""
    kinds: Counter[str] = Counter()
    for wanted, found in zip(gold, predicted, strict=True):
        pairs = match_overlapping(wanted, found, same_type_only=False)
        kinds.update(_kind(*pair) for pair in pairs)
        kinds["missed"] += len(wanted) - len(pairs)
        kinds["spurious"] += len(found) - len(pairs)
    return {kind: kinds[kind] for kind in ERROR_KINDS}


def count_by_length(gold: SentenceSpans, predicted: SentenceSpans) -> IntArray:
    """Strict counts by length in words: (lengths, 3) of tp, fp, fn in the order of `LENGTHS`."""
    return _count_slices(
        gold, predicted, len(LENGTHS), lambda _, span: int(np.searchsorted(_LONGEST, span[1] - span[0]))
    )


def count_by_novelty(
    gold: SentenceSpans, predicted: SentenceSpans, words: Sequence[Sequence[str]], seen: Set[Surface]
) -> IntArray:
    """Strict counts of entities seen and unseen in training: (2, 3) of tp, fp, fn in the order of `NOVELTY`."""
    return _count_slices(
        gold, predicted, len(NOVELTY), lambda sentence, span: int(surface(words[sentence], span) not in seen)
    )


def surface(words: Sequence[str], span: Span) -> Surface:
    """Identity of an entity for the seen and unseen slices."""
    start, end, kind = span
    return " ".join(words[start:end]), kind


def _kind(gold: Span, predicted: Span) -> str:
    same_boundary = gold[:2] == predicted[:2]
    if gold[2] == predicted[2]:
        return "correct" if same_boundary else "boundary"
    return "type" if same_boundary else "boundary and type"


def _count_slices(
    gold: SentenceSpans, predicted: SentenceSpans, num_slices: int, slice_of: Callable[[int, Span], int]
) -> IntArray:
    counts = np.zeros((num_slices, 3), dtype=np.int64)
    for sentence, (wanted, found) in enumerate(zip(map(set, gold), map(set, predicted), strict=True)):
        for column, spans in enumerate((wanted & found, found - wanted, wanted - found)):
            for span in spans:
                counts[slice_of(sentence, span), column] += 1
    return counts
