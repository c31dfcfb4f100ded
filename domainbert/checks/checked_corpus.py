"""Counts of a corpus for the rules, collected in one pass; memory does not grow with the size of the corpus."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from domainbert.base.progress import Progress
from domainbert.checks.finding import MOST_PLACES, Place, place, span_with_context
from domainbert.checks.labelled_set import CheckedSet
from domainbert.checks.text_rules import BROKEN
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.documents import Document, clean, read_documents
from domainbert.corpus.files import find_files
from domainbert.corpus.known_texts import MIN_WORDS, KnownTexts
from domainbert.corpus.ngrams import hash_words, words_of_text
from domainbert.corpus.report import CorpusReport

_SCANNED_CHARACTERS = 20_000  # at the start of each document, searched for broken characters
_MIN_LINE_CHARACTERS = 20  # shorter lines may be equal by chance
_STORED_CHARACTERS = 200  # of a line


@dataclass
class RepeatedLine:
    """A line and how often it occurs."""

    text: str  # at most 200 characters
    first_document: str  # name of the first document with the line
    documents: int = 0  # number of documents with the line


@dataclass
class RepeatedLines:
    """Counts the documents with each line, in bounded memory.

    With more than `max_lines` lines, the rarest half or more are dropped (lossy counting, Manku and Motwani 2002): the
    count of a dropped line starts again at 0.
    """

    max_lines: int = 100_000
    _lines: dict[int, RepeatedLine] = field(default_factory=dict)

    def add(self, document_name: str, text: str) -> None:
        """Count each distinct line of a document once; short lines are skipped."""
        for line in dict.fromkeys(map(str.strip, text.split("\n"))):
            if len(line) >= _MIN_LINE_CHARACTERS:
                key = hash(line)
                if key not in self._lines:
                    self._lines[key] = RepeatedLine(line[:_STORED_CHARACTERS], document_name)
                self._lines[key].documents += 1
        if len(self._lines) > self.max_lines:
            self._drop_rare_lines()

    def lines_in_more_than(self, documents: float) -> list[RepeatedLine]:
        """Return the lines that occur in more than `documents` documents, the most frequent first."""
        frequent = [line for line in self._lines.values() if line.documents > documents]
        return sorted(frequent, key=lambda line: (-line.documents, line.text))

    def _drop_rare_lines(self) -> None:
        minimum = 1
        while len(self._lines) > self.max_lines // 2:
            minimum += 1
            self._lines = {key: line for key, line in self._lines.items() if line.documents >= minimum}


@dataclass
class CheckedCorpus:
    """Counts of a corpus; each document counts once, whatever the weight of its source.

    The name of a document is the index of its source and the document id: `0:speeches.txt:12`.
    """

    config: CorpusConfig
    test: CheckedSet | None
    """Test set whose texts must not be in the corpus."""
    found_items: set[int] = field(default_factory=set)
    """Indices of the items of `test` of which a document has a run of 13 words of a text, or a whole shorter text."""
    report: CorpusReport = field(default_factory=CorpusReport)
    words: int = 0  # number of words
    broken_documents: int = 0  # number of documents with broken characters
    broken_excerpts: list[tuple[str, str]] = field(default_factory=list)
    """Name of the document and text around the broken characters, of the first `MOST_PLACES` broken documents."""
    lines: RepeatedLines = field(default_factory=RepeatedLines)
    _file_lists: dict[str, Mapping[str, Path]] = field(default_factory=dict)

    @cached_property
    def _indexed_test_texts(self) -> list[tuple[int, str]]:
        items = () if self.test is None else self.test.items
        return [(index, clean(text).text) for index, item in enumerate(items) for text in item.texts]

    @cached_property
    def test_texts(self) -> KnownTexts:
        """Texts of `test` to search for."""
        return KnownTexts(text for _, text in self._indexed_test_texts)

    @property
    def num_searched(self) -> int:
        """Number of items of `test` with a text that is long enough to be searched for."""
        return len({index for index, text in self._indexed_test_texts if len(words_of_text(text)) >= MIN_WORDS})

    @property
    def documents(self) -> int:
        """Number of kept documents: training and validation."""
        return sum(map(self.report.documents, ("train", "validation")))

    def places(self, excerpts: Sequence[tuple[str, str]]) -> list[Place]:
        """Return the place of each excerpt, given as (document name, text)."""
        return [self._place(name, text) for name, text in excerpts]

    def _place(self, document_name: str, text: str) -> Place:
        """Return the place of a text in the document `SOURCE:FILE:LINE` or `SOURCE:FILE`."""
        source_index, _, document_id = document_name.partition(":")
        source = self.config.sources[int(source_index)]
        match = re.fullmatch(r"(.*):(\d+)", document_id, re.DOTALL)
        file = match[1] if match else document_id
        line = int(match[2]) if match else None
        path = source.path if source.hub_name else str(self._paths_by_name(source.path).get(file, file))
        return place(path, line, text)

    def _paths_by_name(self, path: str) -> Mapping[str, Path]:
        if path not in self._file_lists:
            self._file_lists[path] = dict(find_files(path))
        return self._file_lists[path]

    def add(self, document_name: str, document: Document) -> None:
        """Add a document to the counts, and search it for the texts of the test set."""
        text = document.text
        words = words_of_text(text)
        self.words += len(words)
        self.lines.add(document_name, text)
        if match := BROKEN.search(text[:_SCANNED_CHARACTERS]):
            self.broken_documents += 1
            if len(self.broken_excerpts) < MOST_PLACES:
                self.broken_excerpts.append((document_name, span_with_context(text, *match.span())))
        if self.test is not None:
            for _, _, texts in self.test_texts.shared_runs(hash_words(words)):
                self.found_items.update(self._indexed_test_texts[index][0] for index in texts)


def scan_corpus(
    config: CorpusConfig, test: CheckedSet | None = None, max_characters: int | None = None
) -> CheckedCorpus:
    """Read a corpus once and return the counts that the rules need. The texts of `test` must not be in the corpus.
    `max_characters` reads an excerpt of at most this size (`Excerpt`)."""
    # a weight above 1 repeats documents, but each document must count once
    sources = [replace(source, weight=min(source.weight, 1.0)) for source in config.sources]
    corpus = CheckedCorpus(config, test)
    with Progress("check") as progress:
        for document in read_documents(replace(config, sources=sources), corpus.report, max_characters):
            source_index = len(corpus.report.sources) - 1  # the report of a source begins with its first document
            corpus.add(f"{source_index}:{document.id}", document)
            progress.advance()
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
