"""The best tree against all trees, spelled out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from domainbert.tasks.parsing.trees import best_tree, find_cycle, greedy_heads, is_tree, roots


def leads_to_root(heads: tuple[int, ...]) -> bool:
    for word in range(1, len(heads) + 1):
        for _ in heads:
            word = heads[word - 1] if word else 0
        if word:
            return False
    return True


def all_trees(size: int) -> list[tuple[int, ...]]:
    """Every choice of heads with one root from which all words are reached: W ** (W - 1) by Cayley's formula."""
    found = itertools.product(range(size + 1), repeat=size)
    trees = [heads for heads in found if heads.count(0) == 1 and leads_to_root(heads)]
    assert len(trees) == size ** (size - 1)
    return trees


TREES = {size: np.array(all_trees(size)) for size in range(1, 7)}


def table(scores: np.ndarray) -> np.ndarray:
    """Scores (W, 1 + W) without arcs from a word to itself."""
    words = np.arange(len(scores))
    scores[words, words + 1] = -np.inf
    return scores


def total(scores: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """The sum of the scores of trees (..., W)."""
    return scores[np.arange(len(scores)), heads].sum(axis=-1)


@pytest.mark.parametrize("kind", ["positive", "negative", "ties", "roots", "huge", "all equal"])
@pytest.mark.parametrize("size", TREES)
def test_the_best_of_all_trees(size: int, kind: str) -> None:
    generator = np.random.default_rng(size)
    for _ in range(60 if size < 6 else 20):
        drawn = generator.normal(size=(size, size + 1))
        scores = {
            "positive": np.exp(drawn),
            "negative": -np.exp(3 * drawn) - 50,
            "ties": generator.integers(-1, 2, (size, size + 1)).astype(float),
            "roots": drawn + np.where(np.arange(size + 1) == 0, 9.0, 0.0),  # each word by itself would be a root
            "huge": 1e6 * drawn,
            "all equal": np.zeros((size, size + 1)),
        }[kind]
        heads = best_tree(table(scores))
        assert is_tree(heads) and tuple(heads) in set(map(tuple, TREES[size].tolist()))
        best = total(scores, TREES[size]).max()
        assert total(scores, np.array(heads)) == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_cycles_in_cycles() -> None:
    """Two pairs prefer each other, then the pairs do, and no word prefers the root."""
    scores = np.full((5, 6), -5.0)
    for word, head in ((1, 2), (2, 1), (3, 4), (4, 3)):
        scores[word - 1, head] = 10
    scores[0, 3] = scores[2, 1] = 8
    scores[4, 5 - 1] = 1
    assert greedy_heads(table(scores)) == [2, 1, 4, 3, 4]
    heads = best_tree(scores)
    assert total(scores, np.array(heads)) == total(scores, TREES[5]).max() and is_tree(heads)


def test_long_sentences() -> None:
    """Of 200 words: trees of log-probabilities, and chains of words that all but follow each other in a circle."""
    generator = np.random.default_rng(0)
    tables = [table(generator.normal(size=(200, 201))) for _ in range(3)]
    nested = table(np.full((200, 201), -50.0))
    for word in range(1, 201):  # a cycle of two, which the next word joins, and so on
        nested[word - 1, max(word - 1, 1) if word > 1 else 2] = 100 - word / 10
    nested[:, 0] = -1000
    assert all(is_tree(best_tree(one)) for one in [*tables, nested])
    with_roots = tables[0].copy()
    with_roots[:, 0] += 100
    assert len(roots(best_tree(with_roots))) == 1 and len(roots(greedy_heads(with_roots))) == 200


@pytest.mark.parametrize(
    ("heads", "cycle"),
    [([0], []), ([1], [1]), ([2, 0, 2], []), ([2, 1, 0], [1, 2]), ([0, 3, 4, 2, 1], [2, 3, 4]), ([0, 0], [])],
)
def test_cycles_are_found(heads: list[int], cycle: list[int]) -> None:
    assert find_cycle(heads) == cycle
    assert is_tree(heads) is (heads.count(0) == 1 and leads_to_root(tuple(heads)))
