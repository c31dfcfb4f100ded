"""Search a corpus for the texts of a labelled set, document by document."""

from __future__ import annotations

from dataclasses import dataclass, field

from domainbert.base.counter_random import UInts
from domainbert.checks.labelled_set import CheckedSet
from domainbert.corpus.documents import clean
from domainbert.corpus.known_texts import KnownTexts


@dataclass
class Overlap:
    """Search for the texts of a labelled set in the documents of a corpus; collects the matches."""

    data: CheckedSet
    matches: dict[int, str] = field(default_factory=dict)
    """Item index to the name of the first document with a run of 13 words of its text, or the whole text."""

    def __post_init__(self) -> None:
        self._texts = KnownTexts(clean(text).text for text in self.data.texts)

    @property
    def num_searched(self) -> int:
        """Number of texts that are long enough to search for."""
        return self._texts.num_indexed

    def search(self, document_name: str, word_hashes: UInts) -> None:
        """Add the texts that occur in a document to `matches`; `word_hashes` as in `hash_words`."""
        for _, _, text_indices in self._texts.shared_runs(word_hashes):
            for index in text_indices:
                self.matches.setdefault(index, document_name)
