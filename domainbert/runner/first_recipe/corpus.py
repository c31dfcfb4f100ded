"""Facts of a corpus: how its documents are told apart, how many there are, and of how many words."""

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
from domainbert.corpus.file_kind import evident_kind, look
from domainbert.corpus.files import format_suffix, read_lines
from domainbert.corpus.report import CorpusReport, listed

_COUNTED = 1_000_000_000  # characters, as many as `vocab` reads bytes
_LOOKED_AT = 1000  # lines


@dataclass(frozen=True)
class CorpusFacts:
    """A corpus, cleaned and without duplicates."""

    source: dict[str, Any]
    """The fields of its `Source` that are not as usual."""

    documents: int
    words: int
    """Between white space."""

    dropped: Counter[str]
    """Documents left out, by reason."""

    complete: bool
    """Whether all of it was counted; else there is more."""

    @property
    def size(self) -> str:
        """`4.7 M words`."""
        return f"{'' if self.complete else 'more than '}{in_millions(self.words)} words"

    def describe(self) -> str:
        """A line for a person."""
        settings = " (corpus.min_characters, corpus.deduplicate)"
        dropped = f"; dropped: {listed(self.dropped)}{settings}" if self.dropped else ""
        return f"{self.source['path']}: {self.documents:,} documents, {self.size}{dropped}"


def in_millions(count: int) -> str:
    """`4.7 M`, or the whole number below 100,000."""
    return f"{count / 1e6:,.1f} M" if count >= 100_000 else f"{count:,}"


def corpus_facts(path: str, text_key: str | None) -> CorpusFacts:
    """Read a corpus, of a large one the beginning; `DomainbertError` if it cannot be read or holds nothing."""
    fields: dict[str, Any] = {"path": path} | ({} if text_key is None else {"text_key": text_key})
    try:
        fields |= _documents_of_text(CorpusConfig([Source(**fields)]).input_files())
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
            if characters >= _COUNTED:
                break
    return CorpusFacts(fields, documents, words, report.dropped, characters < _COUNTED)


def _documents_of_text(files: list[Path]) -> dict[str, str]:
    """The way in which the documents of a corpus that is a single file of plain text are told apart: by blank
    lines, or by lines."""
    if len(files) != 1 or format_suffix(files[0]) != ".txt" or evident_kind(look(files[0])) is not None:
        return {}
    with closing(read_lines(files[0])) as lines:
        blank = any(not line.strip() for _, line in islice(lines, _LOOKED_AT))
    return {"documents": "blank_line" if blank else "line"}
