"""A corpus as rules look at it: read once and counted; what is held in memory does not grow with it."""

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
from domainbert.corpus.ngrams import hash_words, words_of
from domainbert.corpus.report import CorpusReport
from domainbert.tokenization.report import WordStatistics, word_statistics
from domainbert.tokenization.words import WordCounter, plain_words

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer

_LOOKED_AT = 20_000  # characters of a document in which misread characters are looked for
_SAMPLE_BYTES = 10_000_000  # of documents, chosen by their hashes, that a vocabulary is measured on
_AROUND = 60  # characters beside what is shown


@dataclass
class Hits:
    """Number of documents that have something, and the excerpts of the first of them."""

    documents: int = 0
    shown: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, text: str) -> None:
        """Count a document."""
        self.documents += 1
        if len(self.shown) < MOST_PLACES:
            self.shown.append((name, text))


@dataclass
class CheckedCorpus:
    """Counts that were made while a corpus was read, each document once, whatever its weight."""

    config: CorpusConfig
    overlaps: Sequence[Overlap]
    report: CorpusReport = field(default_factory=CorpusReport)
    words: int = 0
    broken: Hits = field(default_factory=Hits)
    lines: RepeatedLines = field(default_factory=RepeatedLines)
    pieces: WordStatistics | None = None
    """A sample of 10 MB, as the vocabulary reads it."""
    _listed: dict[str, Mapping[str, Path]] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Documents that are kept."""
        return sum(map(self.report.documents, ("train", "validation")))

    def places(self, shown: Sequence[tuple[str, str]]) -> list[Place]:
        """Places from the names of documents, `0:speeches.txt:12` in the first source, and texts."""
        return [self._place(name, text) for name, text in shown]

    def _place(self, name: str, text: str) -> Place:
        number, _, identity = name.partition(":")
        source = self.config.sources[int(number)]
        file, _, line = identity.rpartition(":") if re.search(r":\d+$", identity) else (identity, "", "")
        path = source.path if source.hub_name else str(self._files(source.path).get(file, file))
        return place(path, int(line) if line else None, text)

    def _files(self, path: str) -> Mapping[str, Path]:
        if path not in self._listed:
            self._listed[path] = dict(find_files(path))
        return self._listed[path]

    def add(self, name: str, document: Document) -> None:
        """Count one document."""
        text, words = document.text, words_of(document.text)
        self.words += len(words)
        self.lines.add(name, text)
        if found := BROKEN.search(text[:_LOOKED_AT]):
            around = text[max(0, found.start() - _AROUND) : found.end() + _AROUND]
            self.broken.add(name, f"{found[0]!r} in: {around}")
        if self.overlaps:
            hashes = hash_words(words)
            for overlap in self.overlaps:
                overlap.look(name, hashes)


def look_at_corpus(
    config: CorpusConfig,
    tests: Sequence[CheckedSet] = (),
    tokenizer: DomainTokenizer | None = None,
    most_characters: int | None = None,
) -> CheckedCorpus:
    """Read a corpus once, and count what rules ask for.

    Args:
        config: the corpus; a document counts once, whatever the weight of its source.
        tests: labelled sets whose texts should not be in it.
        tokenizer: vocabulary that is to read it.
        most_characters: bound of an excerpt that is read in its place, see `Excerpt`.

    Raises:
        DomainbertError: the corpus cannot be read.
    """
    once = replace(config, sources=[replace(source, weight=min(source.weight, 1.0)) for source in config.sources])
    corpus = CheckedCorpus(config, [Overlap(one) for one in tests])
    sample = WordCounter(_SAMPLE_BYTES)
    with Progress("check") as progress:
        for document in read_documents(once, corpus.report, most_characters):
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
            "path": one.path,
            "read": one.read,
            "files_cut": one.files_cut,
            "documents": sum(one.documents.values()),
            "characters": sum(one.characters.values()),
        }
        for one in corpus.report.sources
    ]
    return {
        "documents": corpus.documents,
        "words": corpus.words,
        "characters": sum(source["characters"] for source in sources),
        "dropped": dict(sorted(corpus.report.dropped.items())),
        "sources": sources,
    }
