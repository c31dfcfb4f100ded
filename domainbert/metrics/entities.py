"""Entity scores from spans `(start, end, type)` in words, `end` exclusive.

Strict: type and both boundaries are right (CoNLL-2003; seqeval's strict mode). Lenient: the type is right and the spans
overlap. Partial: as lenient, but an overlap that is not exact counts half (the credit of MUC-5, Chinchor and Sundheim
1993). For the latter two, gold and predicted spans are matched one to one, the largest overlap first.

Kinds of errors: gold and predicted entities are paired one to one where they overlap, the same type first. A pair is
correct, or wrong in its boundary, its type, or both; unpaired gold is missed, an unpaired prediction spurious. So all
but the spurious are the gold entities, all but the missed the predictions.

An entity is seen when training holds the same surface (its words joined by spaces, case kept) with the same type.
Length and novelty belong to gold and predicted entities alike and are equal in a strict match, so that each slice has
its own tp, fp and fn and the slices sum to the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from domainbert.metrics.counts import IntArray, Scores, by_name, macro_f1, scores

Span = tuple[int, int, str]
SentenceSpans = Sequence[Sequence[Span]]
"""The spans of each sentence: sorted, and free of overlap among themselves, as spans read from tags are."""

ERROR_KINDS = ("correct", "boundary", "type", "boundary and type", "missed", "spurious")
LENGTHS = ("1", "2", "3-4", "5-8", ">8")
NOVELTY = ("seen", "unseen")
_LONGEST = (1, 2, 4, 8)  # words of the longest entity of each length slice but the last

Surface = tuple[str, str]  # words, type


def count_entities(gold: SentenceSpans, predicted: SentenceSpans, types: Sequence[str]) -> IntArray:
    """Strict counts of each sentence and type: (sentences, types, 3) of tp, fp, fn.

    Different lengths, or a type that is not among `types`, raise `ValueError`.

    >>> from domainbert import count_entities
    >>> count_entities([[(0, 2, "law")]], [[(0, 2, "law"), (4, 5, "law")]], ["law"]).tolist()
    [[[1, 1, 0]]]
    """
    try:
        cells = _cells(gold, predicted, types)
    except KeyError:
        unknown = {span[2] for side in (gold, predicted) for spans in side for span in spans}.difference(types)
        raise ValueError(f"entity types {sorted(unknown)} are not among {list(types)}") from None
    counts = np.bincount(np.array(cells, dtype=np.int64), minlength=3 * len(types) * len(gold))
    return counts.reshape(len(gold), len(types), 3)


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


def count_lenient(gold: SentenceSpans, predicted: SentenceSpans, types: Sequence[str]) -> IntArray:
    """Gold entities of each type that are paired with a predicted one of that type, exact or not: (types,)."""
    sentences = zip(gold, predicted, strict=True)
    pairs = (pair for wanted, found in sentences for pair in match_overlapping(wanted, found, same_type_only=True))
    counts = Counter(one[2] for one, _ in pairs)
    return np.array([counts[kind] for kind in types], dtype=np.int64)


def lenient_and_partial(counts: IntArray, matched: IntArray) -> tuple[Scores, Scores]:
    """Lenient and partial scores over all types, from strict counts (types, 3) and `count_lenient` (types,)."""
    exact, spurious, missed = counts.sum(axis=0)

    def credited(credit: float) -> Scores:
        return scores(np.array([credit, exact + spurious - credit, exact + missed - credit]))

    return credited(matched.sum()), credited((matched.sum() + exact) / 2)


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


def all_entity_scores(
    gold: SentenceSpans,
    predicted: SentenceSpans,
    totals: IntArray,
    types: Sequence[str],
    words: Sequence[Sequence[str]],
    seen: Set[Surface] | None,
) -> dict[str, Any]:
    """All scores of a test set: `f1`, `precision` and `recall` are strict and micro; the rest is named for what it is.

    Args:
        gold: the entities of each sentence.
        predicted: those that a model found.
        totals: strict counts of each type, (types, 3).
        types: the names of their rows.
        words: those of each sentence.
        seen: the entities of the training set; None leaves the slices by novelty out.
    """
    lenient, partial = lenient_and_partial(totals, count_lenient(gold, predicted, types))
    found = {
        **entity_scores(totals),
        "lenient": lenient.as_dict(),
        "partial": partial.as_dict(),
        "per_type": by_name(types, totals),
        "errors": error_kinds(gold, predicted),
        "by_length": by_name(LENGTHS, count_by_length(gold, predicted)),
    }
    if seen is not None:
        found["by_novelty"] = by_name(NOVELTY, count_by_novelty(gold, predicted, words, seen))
    return found


class Judged(NamedTuple):
    """A gold entity and the predicted one that it is paired with, of one of `ERROR_KINDS`; None where there is none."""

    gold: Span | None
    predicted: Span | None
    kind: str


def judge_entities(gold: Sequence[Span], predicted: Sequence[Span]) -> list[Judged]:
    """The entities of a sentence by kind: first those that are paired, then missed and spurious ones."""
    pairs = match_overlapping(gold, predicted, same_type_only=False)
    paired_gold, paired_predicted = (set(side) for side in zip(*pairs, strict=True)) if pairs else (set(), set())
    return [
        *(Judged(one, other, _kind(one, other)) for one, other in pairs),
        *(Judged(one, None, "missed") for one in gold if one not in paired_gold),
        *(Judged(None, one, "spurious") for one in predicted if one not in paired_predicted),
    ]


def error_kinds(gold: SentenceSpans, predicted: SentenceSpans) -> dict[str, int]:
    """Number of entities of each of `ERROR_KINDS`."""
    sentences = zip(gold, predicted, strict=True)
    kinds = Counter(one.kind for wanted, found in sentences for one in judge_entities(wanted, found))
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
