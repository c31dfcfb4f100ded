"""Entity scores from spans `(start, end, type)` in words, `end` exclusive.

Strict: type and both boundaries are right (CoNLL-2003; seqeval's strict mode). Lenient: the type is right and the spans
overlap. Partial: as lenient, but an overlap that is not exact counts half (the credit of MUC-5, Chinchor and Sundheim
1993). For the latter two, gold and predicted spans are matched one to one, the largest overlap first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from domainbert.metrics.counts import IntArray, Scores, macro_f1, scores

Span = tuple[int, int, str]
SentenceSpans = Sequence[Sequence[Span]]
"""The spans of each sentence: sorted, and free of overlap among themselves, as spans read from tags are."""


def count_entities(gold: SentenceSpans, predicted: SentenceSpans, types: Sequence[str]) -> IntArray:
    """Strict counts of each sentence and type: (sentences, types, 3) of tp, fp, fn.

    Different lengths, or a type that is not among `types`, raise `ValueError`.
    """
    try:
        cells = _cells(gold, predicted, types)
    except KeyError:
        unknown = {span[2] for side in (gold, predicted) for spans in side for span in spans}.difference(types)
        raise ValueError(f"entity types {sorted(unknown)} are not among {list(types)}") from None
    counts = np.bincount(np.array(cells, dtype=np.int64), minlength=3 * len(types) * len(gold))
    return counts.reshape(-1, len(types), 3)


def _cells(gold: SentenceSpans, predicted: SentenceSpans, types: Sequence[str]) -> list[int]:
    """For each entity the place of its count in the flattened (sentences, types, 3)."""
    column = {kind: 3 * index for index, kind in enumerate(types)}
    cells: list[int] = []
    row = 0
    for wanted, found in zip(gold, predicted, strict=True):
        if wanted or found:  # sets are expensive, and many sentences have no entity
            one, other = set(wanted), set(found)
            counted = ((one & other, 0), (other - one, 1), (one - other, 2)) if one != other else ((one, 0),)
            for spans, place in counted:  # comprehensions would take a quarter longer
                for span in spans:
                    cells.append(row + column[span[2]] + place)
        row += 3 * len(types)
    return cells


def sum_by_document(counts: IntArray, documents: Sequence[int]) -> IntArray:
    """Sum the rows of `counts` (sentences, ...) that have the same document number: (documents, ...)."""
    numbers, index = np.unique(np.asarray(documents, dtype=np.int64), return_inverse=True)
    summed = np.zeros((len(numbers), *counts.shape[1:]), dtype=np.int64)
    np.add.at(summed, index, counts)
    return summed


def lenient_and_partial(gold: SentenceSpans, predicted: SentenceSpans) -> tuple[Scores, Scores]:
    """Lenient and partial scores over all types (see the head of this module)."""
    matched = exact = 0
    for wanted, found in zip(gold, predicted, strict=True):
        pairs = match_overlapping(wanted, found, same_type_only=True)
        matched += len(pairs)
        exact += sum(one == other for one, other in pairs)
    num_gold, num_predicted = sum(map(len, gold)), sum(map(len, predicted))

    def credited(credit: float) -> Scores:
        return scores(np.array([credit, num_predicted - credit, num_gold - credit]))

    return credited(matched), credited((matched + exact) / 2)


def match_overlapping(gold: Sequence[Span], predicted: Sequence[Span], same_type_only: bool) -> list[tuple[Span, Span]]:
    """Pairs (gold, predicted) that overlap, one to one: those of the same type first, then the largest overlap first.

    Among equal overlaps the earlier gold span wins. An exact match is always in the result: neither of its spans
    overlaps any other.
    """
    candidates = []
    for g, p in _overlaps(gold, predicted):
        differs = gold[g][2] != predicted[p][2]
        if not (differs and same_type_only):
            overlap = min(gold[g][1], predicted[p][1]) - max(gold[g][0], predicted[p][0])
            candidates.append((differs, -overlap, g, p))
    pairs = []
    used_gold: set[int] = set()
    used_predicted: set[int] = set()
    for _, _, g, p in sorted(candidates):
        if g not in used_gold and p not in used_predicted:
            used_gold.add(g)
            used_predicted.add(p)
            pairs.append((gold[g], predicted[p]))
    return pairs


def _overlaps(gold: Sequence[Span], predicted: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Indices of all overlapping pairs, in one pass over both sorted lists."""
    g = p = 0
    while g < len(gold) and p < len(predicted):
        if max(gold[g][0], predicted[p][0]) < min(gold[g][1], predicted[p][1]):
            yield g, p
        if gold[g][1] <= predicted[p][1]:
            g += 1
        else:
            p += 1


def entity_scores(counts: IntArray) -> dict[str, Any]:
    """Strict scores of a validation from counts (types, 3): precision, recall and F1 are micro."""
    return {**scores(counts.sum(axis=0)).as_dict(), "macro_f1": float(macro_f1(counts))}
