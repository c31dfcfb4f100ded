"""Search a corpus for the texts of a labelled set, document by document."""

from __future__ import annotations

from domainbert.base.counter_random import UInts
from domainbert.checks.labelled_set import CheckedSet
from domainbert.corpus.documents import clean
from domainbert.corpus.known_texts import KnownTexts


class Overlap:
    """Search for the texts of a labelled set in the documents of a corpus.

    Attributes:
        data: the labelled set.
        num_searched: number of texts that are long enough to search for.
        matches: indices of the items of which a document has a run of 13 words, or the whole text if it is shorter.
    """

    def __init__(self, data: CheckedSet) -> None:
        self.data = data
        self._texts = KnownTexts(clean(text).text for text in data.texts)  # cleaned like the documents
        self.num_searched = self._texts.num_indexed
        self.matches: set[int] = set()

    def search(self, word_hashes: UInts) -> None:
        """Add the items whose text occurs in a document to `matches`. `word_hashes` are the hashes of the words of the
        document, from `hash_words`."""
        for _, _, text_indices in self._texts.shared_runs(word_hashes):
            self.matches.update(text_indices)
