"""Texts of a labelled set that stand in a corpus, found as the corpus is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from domainbert.base.counter_random import UInts
from domainbert.checks.labelled_set import CheckedSet
from domainbert.corpus.documents import clean
from domainbert.corpus.known_texts import KnownTexts


@dataclass
class Overlap:
    """The texts of a labelled set, and those of them that were met."""

    of: CheckedSet
    met: dict[int, str] = field(default_factory=dict)
    """Numbers of texts, and the first document that has them."""

    def __post_init__(self) -> None:
        self._texts = KnownTexts(clean(text).text for text in self.of.texts)

    @property
    def looked_for(self) -> int:
        """Texts that are long enough to be looked for."""
        return self._texts.looked_for

    def look(self, name: str, words: UInts) -> None:
        """Look for the texts in a document, given by the hashes of its words."""
        for _, _, numbers in self._texts.runs_in(words):
            for number in numbers:
                self.met.setdefault(number, name)
