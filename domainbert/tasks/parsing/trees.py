"""Checks of dependency trees, given as heads of words. Words are numbered from 1; head 0 is the root."""

from __future__ import annotations

from collections.abc import Sequence


def find_cycle(heads: Sequence[int]) -> list[int]:
    """Return the words of a cycle, each followed by its head; [] if all words lead to the root.

    >>> find_cycle([2, 0, 5, 3, 4]), find_cycle([2, 0, 2])
    ([3, 5, 4], [])
    """
    walk = [0] * (len(heads) + 1)  # first word of the walk that first reached each word; 0 if not reached
    for start in range(1, len(heads) + 1):
        word = start
        while word and not walk[word]:
            walk[word], word = start, heads[word - 1]
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
