"""Search for known texts, such as a test set, in other texts by runs of words (n-grams)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from domainbert.base.counter_random import UInts
from domainbert.corpus.ngrams import hash_ngrams, hash_words, words_of_text

RUN = 13
"""Words in a run, as in Brown et al. (2020, "Language Models are Few-Shot Learners", appendix C)."""

LEAST = 8
"""Minimum number of words of a known text; a text with fewer words than `RUN` is searched for as a whole."""

_BITS = 22  # a filter of 4 MB in memory rejects nearly all runs of a corpus


class KnownTexts:
    """Index of cleaned texts by number; texts of fewer than `LEAST` words are skipped.

    Attributes:
        looked_for: number of indexed texts.
        too_short: number of skipped texts.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.looked_for = self.too_short = 0
        self._owners: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._filter = np.zeros(1 << _BITS, np.bool_)
        for number, text in enumerate(texts):
            words = words_of_text(text)
            if len(words) < LEAST:
                self.too_short += 1
            else:
                self.looked_for += 1
                size = min(len(words), RUN)
                runs = hash_ngrams(hash_words(words), size)
                self._filter[_buckets(runs)] = True
                for run in set(runs.tolist()):
                    self._owners[size][run].append(number)

    def runs_in(self, words: UInts) -> Iterator[tuple[int, int, list[int]]]:
        """Yield the runs shared with known texts: first word, number of words, and the numbers of the known texts.

        `words` are the hashes of the words of a text, see `hash_words`.
        """
        for size, owners in self._owners.items():
            runs = hash_ngrams(words, size)
            for start in np.flatnonzero(self._filter[_buckets(runs)]).tolist():
                if numbers := owners.get(int(runs[start])):
                    yield start, size, numbers

    def touched(self, parts: Sequence[str]) -> set[int]:
        """Numbers of the parts of a text that overlap with a run of a known text. Parts must end at word borders."""
        words = [words_of_text(part) for part in parts]
        part_of = np.repeat(np.arange(len(words)), list(map(len, words)))
        hashes = hash_words(list(chain.from_iterable(words)))
        return {part for start, size, _ in self.runs_in(hashes) for part in part_of[start : start + size].tolist()}


def _buckets(runs: UInts) -> UInts:
    return runs >> np.uint64(64 - _BITS)
