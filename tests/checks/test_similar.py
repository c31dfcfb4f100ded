"""Texts that are almost the same: the filter by rare runs leaves out no pair."""

from __future__ import annotations

import random
from itertools import product

import pytest

from domainbert.checks.split_rules import similar_pairs


def runs(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + 3]) for at in range(len(words) - 2)}


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_as_all_pairs_compared(threshold: float) -> None:
    draw = random.Random(3)
    texts = [draw.choices("abcdé", k=draw.randrange(5, 40)) for _ in range(60)]
    for text in texts[:30]:  # versions of the others
        text = list(text)
        for _ in range(draw.randrange(3)):
            text[draw.randrange(len(text))] = draw.choice("xyz")
        texts.append(text)
    first, second = texts[:60], texts[60:]
    expected: dict[int, float] = {}
    for (_, one), (number, other) in product(enumerate(first), enumerate(second)):
        both, either = len(runs(one) & runs(other)), len(runs(one) | runs(other))
        if min(len(runs(one)), len(runs(other))) >= 8 and both / either >= threshold:
            expected[number] = max(expected.get(number, 0.0), both / either)
    found = {number: similarity for _, number, similarity in similar_pairs(first, second, threshold)}
    assert found == pytest.approx(expected) and len(expected) >= 5
