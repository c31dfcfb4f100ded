"""Entity scores from spans `(start, end, type)` in words, `end` exclusive.

Strict: type and both boundaries are right (CoNLL-2003; seqeval's strict mode). Lenient: the type is right and the spans
overlap. Partial: as lenient, but an overlap that is not exact counts half (the credit of MUC-5, Chinchor and Sundheim
1993). For the latter two, gold and predicted spans are matched one to one, the largest overlap first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from domainbert.metrics.counts import IntArray, Scores, macro_f1, scores
from domainbert.metrics.matching import SentenceSpans, match_overlapping


def count_entities(gold: SentenceSpans, predicted: SentenceSpans, types: Sequence[str]) -> IntArray:
    """Strict counts of each sentence and type: (sentences, types, 3) of tp, fp, fn.

    Takes a few hundredths of a second for a million words.

    Raises:
        ValueError: the two have different lengths, or a type is not in `types`.
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


def entity_scores(counts: IntArray) -> dict[str, Any]:
    """Strict scores of a validation from counts (types, 3): precision, recall and F1 are micro."""
    return {**scores(counts.sum(axis=0)).as_dict(), "macro_f1": float(macro_f1(counts))}
