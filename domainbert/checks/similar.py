"""Pairs of texts that are almost the same, found exactly: Jaccard similarity of their runs of three words.

Two sets whose similarity is at least t share one of the rarest |x| - ceil(t |x|) + 1 members of either (the prefix
filter of Chaudhuri et al. 2006, "A primitive operator for similarity joins"), so that only texts that share a rare run
are compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from math import ceil

_RUN = 3  # words
_LEAST_RUNS = 8

Runs = frozenset[str]


def similar_pairs(
    first: Sequence[Sequence[str]], second: Sequence[Sequence[str]], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """For each text of the second list that has one in the first that is at least so similar: the number of the most
    similar one, its own, and the similarity. Texts are lists of words; those of less than ten words are left out.
    """
    known, asked = list(map(_runs, first)), list(map(_runs, second))
    counts = Counter(chain.from_iterable(chain(known, asked)))
    index: dict[str, list[int]] = defaultdict(list)
    for number, runs in enumerate(known):
        for run in _rarest(runs, counts, threshold):
            index[run].append(number)
    for number, runs in enumerate(asked):
        candidates = {one for run in _rarest(runs, counts, threshold) for one in index.get(run, ())}
        best = max(((_jaccard(known[one], runs), -one) for one in candidates), default=(0.0, 0))
        if best[0] >= threshold:
            yield -best[1], number, best[0]


def _runs(words: Sequence[str]) -> Runs:
    found = frozenset(" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1))
    return found if len(found) >= _LEAST_RUNS else frozenset()


def _rarest(runs: Runs, counts: Counter[str], threshold: float) -> list[str]:
    return sorted(runs, key=lambda run: (counts[run], run))[: len(runs) - ceil(threshold * len(runs)) + 1]


def _jaccard(one: Runs, other: Runs) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both)
