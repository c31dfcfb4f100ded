"""Search for known texts, such as a test set, in other texts by runs of consecutive words (n-grams)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from domainbert.base.counter_random import UInts
from domainbert.corpus.ngrams import hash_ngrams, hash_words, words_of_text

RUN_WORDS = 13
"""Number of words in a run, as in Brown et al. (2020, "Language Models are Few-Shot Learners", appendix C)."""

MIN_WORDS = 8
"""Minimum number of words of a known text; a text with fewer words than `RUN_WORDS` is searched for as a whole."""

_BITS = 22  # a filter of 4 MB in memory rejects nearly all runs of a corpus


class KnownTexts:
    """Index of the runs of cleaned texts; texts of fewer than `MIN_WORDS` words are skipped.

    Attributes:
        num_indexed: number of indexed texts.
        num_skipped: number of texts that are too short.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.num_indexed = self.num_skipped = 0
        # by run length, then by hash of the run: indices of the texts
        self._texts_with_run: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._filter = np.zeros(1 << _BITS, np.bool_)
        for index, text in enumerate(texts):
            words = words_of_text(text)
            if len(words) < MIN_WORDS:
                self.num_skipped += 1
            else:
                self.num_indexed += 1
                size = min(len(words), RUN_WORDS)
                runs = hash_ngrams(hash_words(words), size)
                self._filter[_buckets(runs)] = True
                for run in set(runs.tolist()):
                    self._texts_with_run[size][run].append(index)

    def shared_runs(self, word_hashes: UInts) -> Iterator[tuple[int, int, list[int]]]:
        """Yield each run of a text that also occurs in known texts: index of its first word, number of words, and the
        indices of the known texts.

        `word_hashes` (words,) are the hashes of the words of the text, see `hash_words`.
        """
        for size, texts_with_run in self._texts_with_run.items():
            runs = hash_ngrams(word_hashes, size)
            for start in np.flatnonzero(self._filter[_buckets(runs)]).tolist():
                if text_indices := texts_with_run.get(int(runs[start])):  # None: another run in the same bucket
                    yield start, size, text_indices

    def overlapping_parts(self, parts: Sequence[str]) -> set[int]:
        """Return the indices of the parts that overlap with a run of a known text; `parts` are the parts of a text, cut
        between words."""
        words = [words_of_text(part) for part in parts]
        part_of = np.repeat(np.arange(len(words)), list(map(len, words)))  # index of the part of each word
        hashes = hash_words(list(chain.from_iterable(words)))
        overlapping: set[int] = set()
        for start, size, _ in self.shared_runs(hashes):
            overlapping.update(part_of[start : start + size].tolist())
        return overlapping


def _buckets(runs: UInts) -> UInts:
    return runs >> np.uint64(64 - _BITS)
