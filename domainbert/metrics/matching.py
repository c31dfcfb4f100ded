"""Pairs gold and predicted spans of one sentence that overlap, one to one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Span = tuple[int, int, str]
SentenceSpans = Sequence[Sequence[Span]]
"""The spans of each sentence: sorted, and free of overlap among themselves, as spans read from tags are."""


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
