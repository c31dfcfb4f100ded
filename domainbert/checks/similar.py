"""Exact search for near-duplicate texts, by the Jaccard similarity of their word trigrams ("runs").

Two sets whose similarity is at least t share one of the rarest |x| - ceil(t |x|) + 1 members of either set (the prefix
filter of Chaudhuri et al. 2006, "A primitive operator for similarity joins"). So only texts that share a rare run are
compared.
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
    """Yield `(number in first, number in second, similarity)` of the most similar text in `first` for each text in
    `second`, if the similarity is at least `threshold`. Texts are lists of words; texts under ten words are skipped.
    """
    first_runs, second_runs = list(map(_runs, first)), list(map(_runs, second))
    counts = Counter(chain.from_iterable(chain(first_runs, second_runs)))
    index: dict[str, list[int]] = defaultdict(list)
    for number, runs in enumerate(first_runs):
        for run in _rarest(runs, counts, threshold):
            index[run].append(number)
    for number, runs in enumerate(second_runs):
        candidates = {at for run in _rarest(runs, counts, threshold) for at in index.get(run, ())}
        best = max(((_jaccard(first_runs[at], runs), -at) for at in candidates), default=(0.0, 0))
        if best[0] >= threshold:
            yield -best[1], number, best[0]


def _runs(words: Sequence[str]) -> Runs:
    runs = frozenset(" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1))
    return runs if len(runs) >= _LEAST_RUNS else frozenset()


def _rarest(runs: Runs, counts: Counter[str], threshold: float) -> list[str]:
    return sorted(runs, key=lambda run: (counts[run], run))[: len(runs) - ceil(threshold * len(runs)) + 1]


def _jaccard(first: Runs, second: Runs) -> float:
    both = len(first & second)
    return both / (len(first) + len(second) - both)
