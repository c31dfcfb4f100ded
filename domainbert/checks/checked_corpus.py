"""Counts of a corpus for the rules, collected in one pass; memory does not grow with the size of the corpus."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.progress import Progress
from domainbert.checks.finding import MOST_PLACES, Place, place
from domainbert.checks.labelled_set import CheckedSet
from domainbert.checks.overlap import Overlap
from domainbert.checks.repeated_lines import RepeatedLines
from domainbert.checks.text_rules import BROKEN
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.documents import Document, read_documents
from domainbert.corpus.files import find_files
from domainbert.corpus.ngrams import hash_words, words_of_text
from domainbert.corpus.report import CorpusReport
from domainbert.tokenization.report import WordStatistics, word_statistics
from domainbert.tokenization.words import WordCounter, plain_words

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer

_SCANNED_CHARACTERS = 20_000  # at the start of each document, searched for broken characters
_SAMPLE_BYTES = 10_000_000  # of the documents, sampled by their hashes, on which a vocabulary is measured
_CONTEXT = 60  # characters shown on each side of a match


@dataclass
class Hits:
    """Number of documents with a problem, and excerpts of the first `MOST_PLACES` of them."""

    documents: int = 0
    excerpts: list[tuple[str, str]] = field(default_factory=list)  # (document name, excerpt)

    def add(self, document_name: str, excerpt: str) -> None:
        """Count a document, and store its excerpt if there are fewer than `MOST_PLACES`."""
        self.documents += 1
        if len(self.excerpts) < MOST_PLACES:
            self.excerpts.append((document_name, excerpt))


@dataclass
class CheckedCorpus:
    """Counts of a corpus; each document counts once, whatever the weight of its source.

    The name of a document is the index of its source and the document id: `0:speeches.txt:12`.
    """

    config: CorpusConfig
    overlaps: Sequence[Overlap]
    """Searches for the texts of labelled sets in this corpus."""
    report: CorpusReport = field(default_factory=CorpusReport)
    words: int = 0  # number of words
    broken: Hits = field(default_factory=Hits)  # documents with broken characters
    lines: RepeatedLines = field(default_factory=RepeatedLines)
    word_statistics: WordStatistics | None = None
    """How the vocabulary splits the words of a sample of 10 MB; None without a vocabulary."""
    _file_lists: dict[str, Mapping[str, Path]] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Number of kept documents: training and validation."""
        return sum(map(self.report.documents, ("train", "validation")))

    def places(self, excerpts: Sequence[tuple[str, str]]) -> list[Place]:
        """Return the place of each excerpt, given as (document name, text)."""
        return [self._place(name, text) for name, text in excerpts]

    def _place(self, document_name: str, text: str) -> Place:
        source_index, _, document_id = document_name.partition(":")
        source = self.config.sources[int(source_index)]
        file, _, line = document_id.rpartition(":") if re.search(r":\d+$", document_id) else (document_id, "", "")
        path = source.path if source.hub_name else str(self._paths_by_name(source.path).get(file, file))
        return place(path, int(line) if line else None, text)

    def _paths_by_name(self, path: str) -> Mapping[str, Path]:
        if path not in self._file_lists:
            self._file_lists[path] = dict(find_files(path))
        return self._file_lists[path]

    def add(self, document_name: str, document: Document) -> None:
        """Add a document to the counts, and search it for the labelled texts."""
        text, words = document.text, words_of_text(document.text)
        self.words += len(words)
        self.lines.add(document_name, text)
        if match := BROKEN.search(text[:_SCANNED_CHARACTERS]):
            context = text[max(0, match.start() - _CONTEXT) : match.end() + _CONTEXT]
            self.broken.add(document_name, f"{match[0]!r} in: {context}")
        if self.overlaps:
            hashes = hash_words(words)
            for overlap in self.overlaps:
                overlap.search(document_name, hashes)


def scan_corpus(
    config: CorpusConfig,
    tests: Sequence[CheckedSet] = (),
    tokenizer: DomainTokenizer | None = None,
    max_characters: int | None = None,
) -> CheckedCorpus:
    """Read a corpus once and return the counts that the rules need.

    Args:
        config: the corpus; a document counts once, whatever the weight of its source.
        tests: labelled sets whose texts must not be in the corpus.
        tokenizer: the tokenizer of the pretraining, whose vocabulary is measured; None: not measured.
        max_characters: read only an excerpt of at most this size, see `Excerpt`.

    Raises:
        DomainbertError: the corpus cannot be read.
    """
    sources = [replace(source, weight=min(source.weight, 1.0)) for source in config.sources]  # no copies
    corpus = CheckedCorpus(config, [Overlap(test) for test in tests])
    sample = WordCounter(_SAMPLE_BYTES)
    with Progress("check") as progress:
        for document in read_documents(replace(config, sources=sources), corpus.report, max_characters):
            corpus.add(f"{len(corpus.report.sources) - 1}:{document.id}", document)
            if tokenizer is not None:
                sample.add(document.text)
            progress.advance()
    if tokenizer is not None:
        corpus.word_statistics = word_statistics(tokenizer, sample.words(plain_words()))
    return corpus


def corpus_facts(corpus: CheckedCorpus) -> dict[str, Any]:
    """Return the counts of a corpus and of each source as JSON values, for `check.json`."""
    sources = [
        {
            "path": source.path,
            "read": source.read,
            "files_cut": source.files_cut,
            "documents": sum(source.documents.values()),
            "characters": sum(source.characters.values()),
        }
        for source in corpus.report.sources
    ]
    return {
        "documents": corpus.documents,
        "words": corpus.words,
        "characters": sum(source["characters"] for source in sources),
        "dropped": dict(sorted(corpus.report.dropped.items())),
        "sources": sources,
    }
