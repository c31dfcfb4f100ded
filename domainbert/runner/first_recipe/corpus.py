"""Facts of a corpus: how its documents are separated, and the numbers of documents and words."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.progress import Progress
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.documents import read_documents
from domainbert.corpus.file_kind import evident_kind, read_first_lines
from domainbert.corpus.files import format_suffix, read_lines
from domainbert.corpus.report import CorpusReport, format_counts

_MAX_CHARACTERS = 1_000_000_000  # similar to the number of bytes that `vocab` reads
_MAX_LINES = 1000


@dataclass(frozen=True)
class CorpusFacts:
    """Size of a cleaned and deduplicated corpus."""

    source: dict[str, Any]
    """Fields of its `Source` that differ from the defaults."""

    documents: int
    words: int
    """Words separated by white space."""

    dropped: Counter[str]
    """Number of dropped documents by reason."""

    complete: bool
    """Whether the whole corpus was counted, not only its beginning."""

    @property
    def size(self) -> str:
        """The number of words as text, such as `4.7 M words`."""
        return f"{'' if self.complete else 'more than '}{in_millions(self.words)} words"

    def describe(self) -> str:
        """Return a line for the user: path, documents, words and dropped documents."""
        settings = " (corpus.min_characters, corpus.deduplicate)"
        dropped = f"; dropped: {format_counts(self.dropped)}{settings}" if self.dropped else ""
        return f"{self.source['path']}: {self.documents:,} documents, {self.size}{dropped}"


def in_millions(count: int) -> str:
    """Format a number as `4.7 M`, or in full below 100,000."""
    return f"{count / 1e6:,.1f} M" if count >= 100_000 else f"{count:,}"


def corpus_facts(path: str, text_key: str | None) -> CorpusFacts:
    """Return the size of a corpus, or of the beginning of a large one.

    Raise `DomainbertError` if it is unreadable or empty.
    """
    fields: dict[str, Any] = {"path": path} | ({} if text_key is None else {"text_key": text_key})
    try:
        fields |= _document_separator(CorpusConfig([Source(**fields)]).input_files())
    except DomainbertError as error:
        raise DomainbertError(str(error).replace("sources[0].path: ", "--corpus: ", 1)) from error
    documents = words = characters = 0
    report = CorpusReport()
    with Progress("count words") as progress:
        for document in read_documents(CorpusConfig([Source(**fields)]), report):
            documents += 1
            words += len(document.text.split())
            characters += len(document.text)
            progress.advance()
            if characters >= _MAX_CHARACTERS:
                break
    return CorpusFacts(fields, documents, words, report.dropped, characters < _MAX_CHARACTERS)


def _document_separator(files: list[Path]) -> dict[str, str]:
    """Return `documents: blank_line` or `documents: line` for a single plain-text file, otherwise {}."""
    if len(files) != 1 or format_suffix(files[0]) != ".txt" or evident_kind(read_first_lines(files[0])) is not None:
        return {}
    with closing(read_lines(files[0])) as lines:
        blank = any(not line.strip() for _, line in islice(lines, _MAX_LINES))
    return {"documents": "blank_line" if blank else "line"}
