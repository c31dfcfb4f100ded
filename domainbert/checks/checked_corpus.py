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
_SAMPLE_BYTES = 10_000_000  # of documents, chosen by their hashes, on which a vocabulary is measured
_CONTEXT = 60  # characters shown on each side of a match


@dataclass
class Hits:
    """Number of matching documents, and excerpts of the first ones."""

    documents: int = 0
    shown: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, text: str) -> None:
        """Count a document and keep its excerpt, up to `MOST_PLACES`."""
        self.documents += 1
        if len(self.shown) < MOST_PLACES:
            self.shown.append((name, text))


@dataclass
class CheckedCorpus:
    """Counts of a corpus; each document counts once, whatever the weight of its source."""

    config: CorpusConfig
    overlaps: Sequence[Overlap]
    report: CorpusReport = field(default_factory=CorpusReport)
    words: int = 0
    broken: Hits = field(default_factory=Hits)
    lines: RepeatedLines = field(default_factory=RepeatedLines)
    pieces: WordStatistics | None = None
    """How the vocabulary splits a sample of 10 MB."""
    _file_lists: dict[str, Mapping[str, Path]] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Number of kept documents: training and validation."""
        return sum(map(self.report.documents, ("train", "validation")))

    def places(self, shown: Sequence[tuple[str, str]]) -> list[Place]:
        """Places from pairs of document name and text; `0:speeches.txt:12` is in the first source."""
        return [self._place(name, text) for name, text in shown]

    def _place(self, name: str, text: str) -> Place:
        number, _, identity = name.partition(":")
        source = self.config.sources[int(number)]
        file, _, line = identity.rpartition(":") if re.search(r":\d+$", identity) else (identity, "", "")
        path = source.path if source.hub_name else str(self._files(source.path).get(file, file))
        return place(path, int(line) if line else None, text)

    def _files(self, path: str) -> Mapping[str, Path]:
        if path not in self._file_lists:
            self._file_lists[path] = dict(find_files(path))
        return self._file_lists[path]

    def add(self, name: str, document: Document) -> None:
        """Count one document."""
        text, words = document.text, words_of_text(document.text)
        self.words += len(words)
        self.lines.add(name, text)
        if match := BROKEN.search(text[:_SCANNED_CHARACTERS]):
            context = text[max(0, match.start() - _CONTEXT) : match.end() + _CONTEXT]
            self.broken.add(name, f"{match[0]!r} in: {context}")
        if self.overlaps:
            hashes = hash_words(words)
            for overlap in self.overlaps:
                overlap.look(name, hashes)


def scan_corpus(
    config: CorpusConfig,
    tests: Sequence[CheckedSet] = (),
    tokenizer: DomainTokenizer | None = None,
    max_characters: int | None = None,
) -> CheckedCorpus:
    """Read a corpus once and collect the counts that the rules need.

    Args:
        config: the corpus; a document counts once, whatever the weight of its source.
        tests: labelled sets whose texts must not be in the corpus.
        tokenizer: vocabulary for the pretraining on this corpus.
        max_characters: read only an excerpt of at most this size, see `Excerpt`.

    Raises:
        DomainbertError: the corpus cannot be read.
    """
    once = replace(config, sources=[replace(source, weight=min(source.weight, 1.0)) for source in config.sources])
    corpus = CheckedCorpus(config, [Overlap(test) for test in tests])
    sample = WordCounter(_SAMPLE_BYTES)
    with Progress("check") as progress:
        for document in read_documents(once, corpus.report, max_characters):
            corpus.add(f"{len(corpus.report.sources) - 1}:{document.id}", document)
            if tokenizer is not None:
                sample.add(document.text)
            progress.advance()
    if tokenizer is not None:
        corpus.pieces = word_statistics(tokenizer, sample.words(plain_words()))
    return corpus


def corpus_facts(corpus: CheckedCorpus) -> dict[str, Any]:
    """Counts of a corpus, for `check.json`."""
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
