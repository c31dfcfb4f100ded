"""Texts of a labelled set that occur in a corpus, found while the corpus is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from domainbert.base.counter_random import UInts
from domainbert.checks.labelled_set import CheckedSet
from domainbert.corpus.documents import clean
from domainbert.corpus.known_texts import KnownTexts


@dataclass
class Overlap:
    """Search for the texts of a labelled set in a corpus, and the matches so far."""

    of: CheckedSet
    met: dict[int, str] = field(default_factory=dict)
    """By item number: the first document that contains the text."""

    def __post_init__(self) -> None:
        self._texts = KnownTexts(clean(text).text for text in self.of.texts)

    @property
    def looked_for(self) -> int:
        """Number of texts that are long enough to search for."""
        return self._texts.looked_for

    def look(self, name: str, words: UInts) -> None:
        """Search a document for the texts; `words` are the hashes of its words."""
        for _, _, numbers in self._texts.runs_in(words):
            for number in numbers:
                self.met.setdefault(number, name)
