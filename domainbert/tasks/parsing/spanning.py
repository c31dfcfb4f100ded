"""The best tree of the scores of arcs: the algorithm of Chu and Liu (1965) and Edmonds (1967), with one root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.tasks.parsing.trees import find_cycle, is_tree

Scores = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


def best_tree(scores: Scores) -> list[int]:
    """The heads of the tree with the highest sum of scores in which one word hangs on the root.

    So that it is one word, each arc from the root is made worse by more than all other arcs could make up for; a second
    one is then never worth its price (Stanojević and Cohen 2021, "A Root of a Problem", EMNLP).

    Args:
        scores: (W, 1 + W) of each head of each word, -inf where there can be none; head 0 is the root.
    """
    heads = scores.argmax(axis=1)
    if is_tree(heads.tolist()):
        return heads.tolist()
    size = len(scores) + 1
    table = np.full((size, size), -np.inf)  # as rows nodes, the root first, as columns their heads
    table[1:] = scores
    finite = table[np.isfinite(table)]
    table[1:, 0] -= 1 + size * (finite.max() - finite.min())
    return _best_arcs(table)[1:].tolist()


def greedy_heads(scores: Scores) -> list[int]:
    """The best head of each word by itself; scores as for `best_tree`."""
    return scores.argmax(axis=1).tolist()


def _best_arcs(table: Scores) -> Ints:
    """The head of each node (n,) in the best tree, of scores (n, n). The root's row is -inf throughout; its head is 0.

    Each node takes its best head. Of a cycle that this makes, one node has to take another: as one node, its members
    compete for the head that costs least to change to; and once that is decided, the others stay as they are.
    """
    contractions: list[_Contraction] = []
    heads = table.argmax(axis=1)
    while cycle := find_cycle(heads[1:].tolist()):
        table, contraction = _contracted(table, heads, np.array(cycle))
        contractions.append(contraction)
        heads = table.argmax(axis=1)
    for contraction in reversed(contractions):
        heads = contraction.undone(heads)
    return heads


@dataclass(frozen=True)
class _Contraction:
    """A cycle that became one node, the last, while the others kept their order."""

    heads: Ints  # (n,) before it
    outside: Ints  # (o,) the nodes that are not in the cycle
    entered: Ints  # (o,) the member of the cycle that takes such a node as its head, if one has to
    chosen: Ints  # (o,) the member of the cycle that is the best head of such a node

    def undone(self, found: Ints) -> Ints:
        """The heads (n,) before the contraction, of those (o + 1,) after it."""
        heads, of_outside, of_cycle = self.heads.copy(), found[:-1], found[-1]
        places = np.append(self.outside, -1)
        heads[self.outside] = np.where(of_outside == len(self.outside), self.chosen, places[of_outside])
        heads[self.entered[of_cycle]] = self.outside[of_cycle]
        return heads


def _contracted(table: Scores, heads: Ints, cycle: Ints) -> tuple[Scores, _Contraction]:
    """The scores (o + 1, o + 1) after a cycle that the best heads (n,) make has become one node, and how to undo it."""
    outside = np.setdiff1d(np.arange(len(table)), cycle)
    entering = table[np.ix_(cycle, outside)] - table[cycle, heads[cycle]][:, None]
    leaving = table[np.ix_(outside, cycle)]
    smaller = np.full((len(outside) + 1,) * 2, -np.inf)
    smaller[:-1, :-1] = table[np.ix_(outside, outside)]
    smaller[-1, :-1], smaller[:-1, -1] = entering.max(axis=0), leaving.max(axis=1)
    entered, chosen = cycle[entering.argmax(axis=0)], cycle[leaving.argmax(axis=1)]
    return smaller, _Contraction(heads, outside, entered, chosen)
