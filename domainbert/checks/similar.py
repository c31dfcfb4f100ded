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

_RUN_WORDS = 3
_MIN_RUNS = 8  # of a text of ten words; shorter texts are skipped

Runs = frozenset[str]


def similar_pairs(
    first: Sequence[Sequence[str]], second: Sequence[Sequence[str]], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """Yield `(index in first, index in second, similarity)` of each text in `second` and its most similar text in
    `first`. Texts are lists of words. Pairs below the threshold and texts of fewer than ten words are skipped.
    """
    first_runs, second_runs = list(map(_runs, first)), list(map(_runs, second))
    counts = Counter(chain.from_iterable(chain(first_runs, second_runs)))
    texts_with_run: dict[str, list[int]] = defaultdict(list)  # indices in `first`
    for index, runs in enumerate(first_runs):
        for run in _rarest(runs, counts, threshold):
            texts_with_run[run].append(index)
    for index, runs in enumerate(second_runs):
        candidates = {text for run in _rarest(runs, counts, threshold) for text in texts_with_run.get(run, ())}
        similarities = {text: _jaccard(first_runs[text], runs) for text in sorted(candidates)}
        most_similar = max(similarities, key=similarities.__getitem__, default=None)  # ties: the first text
        if most_similar is not None and similarities[most_similar] >= threshold:
            yield most_similar, index, similarities[most_similar]


def _runs(words: Sequence[str]) -> Runs:
    """Return the distinct word trigrams of a text; the empty set if there are fewer than 8."""
    runs = frozenset(" ".join(words[start : start + _RUN_WORDS]) for start in range(len(words) - _RUN_WORDS + 1))
    return runs if len(runs) >= _MIN_RUNS else frozenset()


def _rarest(runs: Runs, counts: Counter[str], threshold: float) -> list[str]:
    """Return the rarest runs by `counts`, as many as the prefix filter needs; ties: alphabetical order."""
    return sorted(runs, key=lambda run: (counts[run], run))[: len(runs) - ceil(threshold * len(runs)) + 1]


def _jaccard(first: Runs, second: Runs) -> float:
    return len(first & second) / len(first | second)
