"""Texts that are known, such as those of a test set, found in others by runs of words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from domainbert.base.counter_random import UInts
from domainbert.corpus.ngrams import hash_ngrams, hash_words, words_of

RUN = 13
"""Words of a run, as Brown et al. (2020, "Language Models are Few-Shot Learners", appendix C) take them."""

LEAST = 8
"""Words of a text that is too short for a run, and is looked for as a whole."""

_BITS = 22  # of a filter in memory that all but a few runs of a corpus end at: 4 MB


class KnownTexts:
    """Cleaned texts by number; those of fewer than `LEAST` words are not looked for.

    Attributes:
        looked_for: number of the others.
        too_short: number of these.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.looked_for = self.too_short = 0
        self._owners: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._filter = np.zeros(1 << _BITS, np.bool_)
        for number, text in enumerate(texts):
            words = words_of(text)
            if len(words) < LEAST:
                self.too_short += 1
            else:
                self.looked_for += 1
                size = min(len(words), RUN)
                runs = hash_ngrams(hash_words(words), size)
                self._filter[_places(runs)] = True
                for run in set(runs.tolist()):
                    self._owners[size][run].append(number)

    def runs_in(self, words: UInts) -> Iterator[tuple[int, int, list[int]]]:
        """The runs of a text that known ones have, too: first word, number of words, and the numbers of the texts.

        The text is given by the hashes of its words, see `hash_words`.
        """
        for size, owners in self._owners.items():
            runs = hash_ngrams(words, size)
            for place in np.flatnonzero(self._filter[_places(runs)]).tolist():
                if found := owners.get(int(runs[place])):
                    yield place, size, found

    def touched(self, parts: Sequence[str]) -> set[int]:
        """Numbers of the parts of a text, none of which ends within a word, that a run of a known one touches."""
        words = [words_of(part) for part in parts]
        part_of = np.repeat(np.arange(len(words)), [len(one) for one in words])
        hashes = hash_words(list(chain.from_iterable(words)))
        return {part for place, size, _ in self.runs_in(hashes) for part in part_of[place : place + size].tolist()}


def _places(runs: UInts) -> UInts:
    return runs >> np.uint64(64 - _BITS)
