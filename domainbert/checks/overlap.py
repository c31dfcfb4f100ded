"""Texts of a labelled set that stand in a corpus, found by runs of words as the corpus is read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from domainbert.base.counter_random import UInts
from domainbert.checks.labelled_set import CheckedSet
from domainbert.corpus.documents import clean
from domainbert.corpus.ngrams import hash_ngrams, hash_words, words_of

RUN = 13
"""Words of a run, as Brown et al. (2020, "Language Models are Few-Shot Learners", appendix C) take them."""

LEAST = 8
"""Words of a text that is too short for a run, and is looked for as a whole."""

_BITS = 22  # of a filter in memory that all but a few runs of a corpus end at: 4 MB


@dataclass
class Overlap:
    """The texts of a labelled set, and those of them that were met."""

    of: CheckedSet
    looked_for: int = 0
    """Texts of at least `LEAST` words."""
    met: dict[int, str] = field(default_factory=dict)
    """Numbers of texts, and the first document that has them."""

    def __post_init__(self) -> None:
        self._owners: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._filter = np.zeros(1 << _BITS, np.bool_)
        for number, text in enumerate(self.of.texts):
            words = words_of(clean(text).text)
            if len(words) >= LEAST:
                self.looked_for += 1
                size = min(len(words), RUN)
                runs = hash_ngrams(hash_words(words), size)
                self._filter[_places(runs)] = True
                for run in set(runs.tolist()):
                    self._owners[size][run].append(number)

    def look(self, name: str, words: UInts) -> None:
        """Look for the texts in a document, given by the hashes of its words."""
        for size, owners in self._owners.items():
            runs = hash_ngrams(words, size)
            for run in runs[self._filter[_places(runs)]].tolist():
                for number in owners.get(run, ()):
                    self.met.setdefault(number, name)


def _places(runs: UInts) -> UInts:
    return runs >> np.uint64(64 - _BITS)
