"""Entity scores from spans `(start, end, type)` in words, `end` exclusive.

Strict: type and both boundaries are correct (CoNLL-2003; seqeval's strict mode). Lenient: the type is correct and the
spans overlap. Partial: as lenient, but an inexact overlap counts half (as in MUC-5, Chinchor and Sundheim 1993). For
lenient and partial scores, gold and predicted spans are matched one to one, the largest overlap first.

Kinds of errors: overlapping gold and predicted entities are paired one to one, the same type first. A pair is correct,
or wrong in boundary, type, or both; unpaired gold entities are missed, unpaired predictions spurious.

An entity is seen if the training set has the same surface (words joined by spaces, case kept) with the same type.
Length and novelty are equal for a strict match of gold and prediction, so each slice has tp, fp and fn, and the slices
sum to the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from domainbert.metrics.counts import IntArray, count_slices, macro_f1, scores, scores_by_name

Span = tuple[int, int, str]
SentenceSpans = Sequence[Sequence[Span]]
"""Spans of each sentence, sorted and without overlaps, like spans read from tags."""

ERROR_KINDS = ("correct", "boundary", "type", "boundary and type", "missed", "spurious")
LENGTHS = ("1", "2", "3-4", "5-8", ">8")
"""Slices (groups of entities) by number of words."""

NOVELTY = ("seen", "unseen")
"""Slices by occurrence in the training set."""

_MAX_WORDS = (1, 2, 4, 8)  # maximum words of each slice except the last

Surface = tuple[str, str]  # words, type


def count_entities(gold: SentenceSpans, predicted: SentenceSpans, types: Sequence[str]) -> IntArray:
    """Return the counts of strict matches by sentence and type: (sentences, types, 3) of tp, fp, fn.

    Raise `ValueError` for different lengths or unknown types.

    >>> from domainbert import count_entities
    >>> count_entities([[(0, 2, "law")]], [[(0, 2, "law"), (4, 5, "law")]], ["law"]).tolist()
    [[[1, 1, 0]]]
    """
    try:
        indices = _count_indices(gold, predicted, types)
    except KeyError:
        unknown = {span[2] for side in (gold, predicted) for spans in side for span in spans}.difference(types)
        raise ValueError(f"types: found {list(types)}; expected also {sorted(unknown)}, as in the spans") from None
    counts = np.bincount(np.array(indices, dtype=np.int64), minlength=3 * len(types) * len(gold))
    return counts.reshape(len(gold), len(types), 3)


def _count_indices(gold: SentenceSpans, predicted: SentenceSpans, types: Sequence[str]) -> list[int]:
    """Return, for each entity, the index of the count to increase in the flattened (sentences, types, 3)."""
    type_offsets = {name: 3 * index for index, name in enumerate(types)}
    indices: list[int] = []
    sentence_offset = 0
    for gold_spans, spans in zip(gold, predicted, strict=True):
        if gold_spans or spans:  # sets are expensive, and many sentences have no entity
            gold_set, predicted_set = set(gold_spans), set(spans)
            outcomes = gold_set & predicted_set, predicted_set - gold_set, gold_set - predicted_set  # tp, fp, fn
            for outcome, subset in enumerate(outcomes):
                for span in subset:  # a comprehension takes a quarter longer
                    indices.append(sentence_offset + type_offsets[span[2]] + outcome)
        sentence_offset += 3 * len(types)
    return indices


def count_lenient(gold: SentenceSpans, predicted: SentenceSpans, types: Sequence[str]) -> IntArray:
    """Return, by type, the number of gold entities paired with a prediction of the same type, exact or not:
    (types,)."""
    sentences = zip(gold, predicted, strict=True)
    pairs = (pair for spans in sentences for pair in match_overlapping(*spans, same_type_only=True))
    counts = Counter(gold_span[2] for gold_span, _ in pairs)
    return np.array([counts[name] for name in types], dtype=np.int64)


def lenient_and_partial(counts: IntArray, matched: IntArray) -> tuple[dict[str, float], dict[str, float]]:
    """Return lenient and partial scores of all types. `counts` (types, 3) are strict, and `matched` (types,) is the
    result of `count_lenient`."""
    num_exact, spurious, missed = counts.sum(axis=0)

    def with_credit(credit: float) -> dict[str, float]:
        """Return the scores with `credit`, a number of entities, as true positives."""
        return scores(np.array([credit, num_exact + spurious - credit, num_exact + missed - credit]))

    lenient_credit = matched.sum()
    partial_credit = (matched.sum() + num_exact) / 2  # inexact matches count half
    return with_credit(lenient_credit), with_credit(partial_credit)


def match_overlapping(gold: Sequence[Span], predicted: Sequence[Span], same_type_only: bool) -> list[tuple[Span, Span]]:
    """Return one-to-one pairs (gold, predicted) of overlapping spans: the same type first, then the largest overlap.

    Ties: the earlier gold span. `same_type_only` excludes pairs of different types. Exact matches are always paired,
    because their spans overlap no other span.
    """
    candidates = []
    for g, p in _overlaps(gold, predicted):
        has_other_type = gold[g][2] != predicted[p][2]
        if not (has_other_type and same_type_only):
            overlap = min(gold[g][1], predicted[p][1]) - max(gold[g][0], predicted[p][0])
            candidates.append((has_other_type, -overlap, g, p))
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
    """Yield the indices (in `gold`, in `predicted`) of all overlapping pairs, in one pass over both sorted lists."""
    g = p = 0
    while g < len(gold) and p < len(predicted):
        if max(gold[g][0], predicted[p][0]) < min(gold[g][1], predicted[p][1]):
            yield g, p
        if gold[g][1] <= predicted[p][1]:
            g += 1
        else:
            p += 1


def entity_scores(counts: IntArray) -> dict[str, Any]:
    """Return strict validation scores of counts (types, 3): micro precision, recall and F1, and macro F1."""
    return {**scores(counts.sum(axis=0)), "macro_f1": float(macro_f1(counts))}


def all_entity_scores(
    gold: SentenceSpans,
    predicted: SentenceSpans,
    totals: IntArray,
    types: Sequence[str],
    words: Sequence[Sequence[str]],
    seen: Set[Surface] | None,
) -> dict[str, Any]:
    """Return all test scores: `f1`, `precision` and `recall` are strict micro averages.

    `totals` (types, 3) are the strict counts by type, `words` the words of each sentence, `seen` the entities of the
    training set; None omits the slices by novelty.
    """
    lenient, partial = lenient_and_partial(totals, count_lenient(gold, predicted, types))
    all_scores = {
        **entity_scores(totals),
        "lenient": lenient,
        "partial": partial,
        "per_type": scores_by_name(types, totals),
        "errors": error_kinds(gold, predicted),
        "by_length": scores_by_name(LENGTHS, count_by_length(gold, predicted)),
    }
    if seen is not None:
        all_scores["by_novelty"] = scores_by_name(NOVELTY, count_by_novelty(gold, predicted, words, seen))
    return all_scores


class JudgedEntity(NamedTuple):
    """A pair of a gold and a predicted entity, one of them None if unpaired, and its kind in `ERROR_KINDS`."""

    gold: Span | None
    predicted: Span | None
    kind: str


def judge_entities(gold: Sequence[Span], predicted: Sequence[Span]) -> list[JudgedEntity]:
    """Return the entities of a sentence with their kind of error: pairs first, then missed and spurious entities."""
    pairs = match_overlapping(gold, predicted, same_type_only=False)
    paired_gold = {gold_span for gold_span, _ in pairs}
    paired_predicted = {span for _, span in pairs}
    return [
        *(JudgedEntity(gold_span, span, _error_kind(gold_span, span)) for gold_span, span in pairs),
        *(JudgedEntity(span, None, "missed") for span in gold if span not in paired_gold),
        *(JudgedEntity(None, span, "spurious") for span in predicted if span not in paired_predicted),
    ]


def error_kinds(gold: SentenceSpans, predicted: SentenceSpans) -> dict[str, int]:
    """Return the number of entities of each of `ERROR_KINDS`."""
    sentences = zip(gold, predicted, strict=True)
    kinds = Counter(judged.kind for spans in sentences for judged in judge_entities(*spans))
    return {kind: kinds[kind] for kind in ERROR_KINDS}


def count_by_length(gold: SentenceSpans, predicted: SentenceSpans) -> IntArray:
    """Return the counts of strict matches by length in words: (lengths, 3) of tp, fp, fn in the order of `LENGTHS`."""
    return count_slices(_entity_set(gold), _entity_set(predicted), len(LENGTHS), _length_slice)


def _length_slice(entity: tuple[int, Span]) -> int:
    start, end, _ = entity[1]
    return int(np.searchsorted(_MAX_WORDS, end - start))


def count_by_novelty(
    gold: SentenceSpans, predicted: SentenceSpans, words: Sequence[Sequence[str]], seen: Set[Surface]
) -> IntArray:
    """Return the counts of strict matches of seen and of unseen entities: (2, 3) of tp, fp, fn.

    `words` are the words of each sentence. `seen` has the surfaces of the entities of the training set.
    """

    def novelty_slice(entity: tuple[int, Span]) -> int:
        """Return the index in `NOVELTY` of an entity (sentence, span)."""
        sentence, span = entity
        return int(surface(words[sentence], span) not in seen)

    return count_slices(_entity_set(gold), _entity_set(predicted), len(NOVELTY), novelty_slice)


def _entity_set(spans: SentenceSpans) -> set[tuple[int, Span]]:
    return {(sentence, span) for sentence, sentence_spans in enumerate(spans) for span in sentence_spans}


def surface(words: Sequence[str], span: Span) -> Surface:
    """Return the words and the type of an entity, which decide whether it is seen."""
    start, end, name = span
    return " ".join(words[start:end]), name


def _error_kind(gold: Span, predicted: Span) -> str:
    same_boundary, same_type = gold[:2] == predicted[:2], gold[2] == predicted[2]
    if same_type:
        return "correct" if same_boundary else "boundary"
    return "type" if same_boundary else "boundary and type"
