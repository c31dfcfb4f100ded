"""Dependency trees, given as heads of words: checks, and the best tree. Words are numbered from 1; head 0 is the root.

The best tree is a maximum spanning tree with a single root: the algorithm of Chu and Liu (1965) and Edmonds (1967).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.attachment import Arc

Scores = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


class Tree(NamedTuple):
    """Dependency tree of a sentence: one arc, a pair (head, label), for each word."""

    arcs: list[Arc]
    scores: list[float]
    """Probability of each arc: of its head, times its label given the head."""


def find_cycle(heads: Sequence[int]) -> list[int]:
    """Return the words of a cycle, each followed by its head; [] if all words lead to the root.

    >>> find_cycle([2, 0, 5, 3, 4]), find_cycle([2, 0, 2])
    ([3, 5, 4], [])
    """
    walk = [0] * (len(heads) + 1)  # first word of the walk that first reached each word; 0 if not reached
    for start in range(1, len(heads) + 1):
        word = start
        while word and not walk[word]:
            walk[word] = start
            word = heads[word - 1]
        if word and walk[word] == start:
            cycle = [word]
            while (word := heads[word - 1]) != cycle[0]:
                cycle.append(word)
            return cycle
    return []


def roots(heads: Sequence[int]) -> list[int]:
    """Return the words whose head is the root."""
    return [word for word, head in enumerate(heads, 1) if head == 0]


def is_tree(heads: Sequence[int]) -> bool:
    """Whether the heads have one root and no cycle."""
    return len(roots(heads)) == 1 and not find_cycle(heads)


def best_tree(scores: Scores) -> list[int]:
    """Return the heads of the tree with the highest sum of scores in which one word has the root as head.

    A penalty on arcs from the root that exceeds any gain from other arcs enforces the single root (Stanojević and Cohen
    2021, "A Root of a Problem", EMNLP).

    Args:
        scores: (W, 1 + W) score of each head for each word, -inf for impossible heads; head 0 is the root.

    Returns:
        (W,) the number of each word's head: words from 1, or 0 for the root.
    """
    heads = scores.argmax(axis=1)
    if is_tree(heads.tolist()):
        return heads.tolist()
    size = len(scores) + 1
    table = np.full((size, size), -np.inf)  # rows are nodes, the root first; columns are their heads
    table[1:] = scores
    finite = table[np.isfinite(table)]
    table[1:, 0] -= 1 + size * (finite.max() - finite.min())
    return _best_arcs(table)[1:].tolist()


def greedy_heads(scores: Scores) -> list[int]:
    """Return the best head of each word independently; `scores` as for `best_tree`."""
    return scores.argmax(axis=1).tolist()


def _best_arcs(table: Scores) -> Ints:
    """Return the head of each node (n,) in the best tree, from scores (n, n); the row of the root is -inf, its head 0.

    Each node takes its best head. In a resulting cycle, one node must change its head. So the cycle is contracted to
    one node, whose scores are those of the member with the smallest loss. After the best head of this node is known,
    that member changes its head, and the other members keep their heads.
    """
    contractions: list[_Contraction] = []
    heads = table.argmax(axis=1)
    while cycle := find_cycle(heads[1:].tolist()):
        table, contraction = _contract(table, heads, np.array(cycle))
        contractions.append(contraction)
        heads = table.argmax(axis=1)
    for contraction in reversed(contractions):
        heads = contraction.expand(heads)
    return heads


@dataclass(frozen=True)
class _Contraction:
    """A cycle contracted to one node. The smaller graph has the nodes outside of the cycle, in their order, then the
    cycle."""

    heads: Ints  # (n,) heads before the contraction
    outside: Ints  # (o,) nodes outside of the cycle
    best_heads: Ints  # (o,) member of the cycle that is the best head of each outside node
    best_dependents: Ints  # (o,) member of the cycle that loses least if each outside node becomes its head

    def expand(self, contracted_heads: Ints) -> Ints:
        """Return the heads (n,) of all nodes, from the heads (o + 1,) in the smaller graph, as indices of its nodes."""
        cycle = len(self.outside)  # the index of the cycle in the smaller graph
        heads = self.heads.copy()  # all members of the cycle keep their heads, except one
        for node, head, best_member in zip(self.outside, contracted_heads[:cycle], self.best_heads, strict=True):
            heads[node] = best_member if head == cycle else self.outside[head]
        head_of_cycle = contracted_heads[cycle]
        heads[self.best_dependents[head_of_cycle]] = self.outside[head_of_cycle]
        return heads


def _contract(table: Scores, heads: Ints, cycle: Ints) -> tuple[Scores, _Contraction]:
    """Contract a cycle of the best heads (n,) to one node; return the new scores (o + 1, o + 1) and the contraction."""
    outside = np.setdiff1d(np.arange(len(table)), cycle)
    # change of the score (member, outside node) if the outside node becomes the head of the member
    entering = table[np.ix_(cycle, outside)] - table[cycle, heads[cycle]][:, None]
    leaving = table[np.ix_(outside, cycle)]  # (outside node, member) score of the member as its head
    smaller = np.full((len(outside) + 1,) * 2, -np.inf)  # the last row and column are the cycle
    smaller[:-1, :-1] = table[np.ix_(outside, outside)]
    smaller[-1, :-1] = entering.max(axis=0)
    smaller[:-1, -1] = leaving.max(axis=1)
    best_heads, best_dependents = cycle[leaving.argmax(axis=1)], cycle[entering.argmax(axis=0)]
    return smaller, _Contraction(heads, outside, best_heads, best_dependents)
