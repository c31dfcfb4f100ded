"""Facts of a corpus: how its documents are separated, numbers of documents and words, and held-out texts to exclude."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.progress import Progress
from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.documents import clean_sides, excluded_texts, read_documents
from domainbert.corpus.file_kind import evident_kind, read_first_lines
from domainbert.corpus.files import format_suffix, read_lines
from domainbert.corpus.report import CorpusReport, format_counts
from domainbert.labelled.contents import text_in
from domainbert.labelled.file_sample import read_sample
from domainbert.labelled.items import Labelled
from domainbert.labelled.sets import Single, path_of

_MAX_CHARACTERS = 1_000_000_000  # similar to the number of bytes that `vocab` reads
_MAX_LINES = 1000


@dataclass(frozen=True)
class CorpusFacts:
    """Size of a cleaned and deduplicated corpus."""

    source: dict[str, Any]  # fields of the corpus's `Source` that differ from the defaults
    documents: int
    words: int  # words separated by white space
    dropped: Counter[str]  # number of dropped documents by reason
    complete: bool  # whether the whole corpus was counted, not only its beginning

    @property
    def size(self) -> str:
        """The number of words as text, such as `4.7 M words`."""
        count = f"{self.words / 1e6:,.1f} M" if self.words >= 100_000 else f"{self.words:,}"
        return f"{'' if self.complete else 'more than '}{count} words"

    def describe(self) -> str:
        """Return a line for the user: path, documents, words and dropped documents."""
        settings = " (corpus.min_characters, corpus.deduplicate)"
        dropped = f"; dropped: {format_counts(self.dropped)}{settings}" if self.dropped else ""
        return f"{self.source['path']}: {self.documents:,} documents, {self.size}{dropped}"


def corpus_facts(path: str, text_key: str | None) -> CorpusFacts:
    """Return the size of a corpus, or of the beginning of a large corpus.

    Raise `DomainbertError` if the corpus is unreadable or empty.
    """
    fields: dict[str, Any] = {"path": path} | ({} if text_key is None else {"text_key": text_key})
    try:
        fields |= _document_separator(CorpusConfig([Source(**fields)]).input_files())
    except DomainbertError as error:
        if error.where != "sources[0].path":
            raise
        raise error.at("--corpus") from error
    num_documents = num_words = num_characters = 0
    report = CorpusReport()
    with Progress("count words") as progress:
        for document in read_documents(CorpusConfig([Source(**fields)]), report):
            num_documents += 1
            num_words += len(document.text.split())
            num_characters += len(document.text)
            progress.advance()
            if num_characters >= _MAX_CHARACTERS:
                break
    return CorpusFacts(fields, num_documents, num_words, report.dropped, complete=num_characters < _MAX_CHARACTERS)


def _document_separator(files: list[Path]) -> dict[str, str]:
    if len(files) != 1 or format_suffix(files[0]) != ".txt" or evident_kind(read_first_lines(files[0])) is not None:
        return {}
    with closing(read_lines(files[0])) as lines:
        has_blank_line = any(not line.strip() for _, line in islice(lines, _MAX_LINES))
    return {"documents": "blank_line" if has_blank_line else "line"}


def exclude_entry(file: Single, labelled: Labelled[Any]) -> str | dict[str, str] | None:
    """Return the entry of `exclude` of a corpus for a held-out file; None also if all its texts are too short to be
    searched for."""
    from domainbert.corpus.known_texts import MIN_WORDS  # here: imports numpy, which `--help` does not need

    return corpus_entry(file, labelled, MIN_WORDS)


def corpus_entry(file: Single, labelled: Labelled[Any], min_words: int = 1) -> str | dict[str, str] | None:
    """Return the path of a labelled file, or the fields of a source, with which a corpus reads its texts.

    Return None if a corpus cannot read all texts of the file, or if all texts have fewer than `min_words` words.
    """
    from domainbert.corpus.ngrams import words_of_text  # here, too

    path = str(path_of(file))
    texts = [clean_sides([text_in(item.content)]).text for item in labelled.items]  # cleaned like a corpus
    long_texts = {tuple(words) for words in map(words_of_text, texts) if len(words) >= min_words}
    if not long_texts:
        return None
    for fields in _candidate_fields(file):
        try:
            texts_read = {tuple(words_of_text(text)) for text in excluded_texts([Source(path, **fields)])}
        except DomainbertError:
            continue  # wrong fields for this file
        if long_texts <= texts_read:
            return {"path": path, **fields} if fields else path
    return None


def _candidate_fields(file: Single) -> Iterator[dict[str, Any]]:
    """Yield the fields of a `Source`, besides its path, to try in order until one reads a labelled file.

    For each column with text: its key ("text" is the default), then also the format, for JSONL with another suffix.
    """
    sample = read_sample(file, {})
    if sample.rows and sample.kind != "lines":
        for key, value in sample.rows[0].items():
            if isinstance(value, str):
                yield {} if key == "text" else {"text_key": key}
                yield {"text_key": key, "format": "jsonl"}
    else:
        yield {}
