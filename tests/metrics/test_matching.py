from __future__ import annotations

import itertools

import numpy as np

from domainbert.metrics.entities import match_overlapping


def overlap(one, other) -> int:
    """Words that both spans hold."""
    return len(set(range(*one[:2])) & set(range(*other[:2])))


def spans_of(generator, words: int):
    """Sorted spans without overlap among themselves, some of them next to each other."""
    ends = sorted({0, words, *generator.integers(1, words, 7).tolist()})
    kinds = generator.choice(["x", "y"], len(ends))
    return [(a, b, str(k)) for a, b, k in zip(ends, ends[1:], kinds[1:], strict=False) if generator.random() < 0.7]


def by_the_rule(gold, predicted, same_type_only):
    """Again and again the best of all pairs that are left: of one type, then the larger overlap, then the earlier."""
    found, left = [], list(itertools.product(gold, predicted))
    while left := [(g, p) for g, p in left if overlap(g, p) and (g[2] == p[2] or not same_type_only)]:
        best = min(left, key=lambda pair: (pair[0][2] != pair[1][2], -overlap(*pair), pair[0], pair[1]))
        found.append(best)
        left = [(g, p) for g, p in left if g != best[0] and p != best[1]]
    return found


def test_pairs_are_those_of_the_rule():
    generator = np.random.default_rng(0)
    matched = 0
    for _ in range(300):
        gold, predicted = spans_of(generator, 24), spans_of(generator, 24)
        for same_type_only in (False, True):
            pairs = match_overlapping(gold, predicted, same_type_only)
            assert pairs == by_the_rule(gold, predicted, same_type_only)
            matched += len(pairs)
    assert matched > 1000


def test_the_larger_overlap_goes_first():
    gold = [(0, 3, "x"), (3, 10, "x")]
    assert match_overlapping(gold, [(1, 6, "x")], True) == [(gold[1], (1, 6, "x"))]
    assert match_overlapping(gold, [(0, 5, "x")], True) == [(gold[0], (0, 5, "x"))]
    assert match_overlapping(gold, [(0, 5, "x"), (5, 9, "y")], False) == [
        (gold[0], (0, 5, "x")),
        (gold[1], (5, 9, "y")),
    ]
    assert match_overlapping(gold, [(10, 12, "x")], False) == []
