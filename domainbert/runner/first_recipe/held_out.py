"""Describe the held-out files of a labelled set as corpus sources, so that a corpus can exclude their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.corpus.config import Source
from domainbert.corpus.documents import clean_sides, excluded_texts
from domainbert.labelled.contents import text_in
from domainbert.labelled.file_sample import read_sample
from domainbert.labelled.items import Labelled
from domainbert.labelled.sets import Single, path_of


def as_sources(held_out: Iterable[tuple[Single, Labelled[Any]]]) -> list[str | dict[str, str]]:
    """Return entries of `exclude` of a corpus for the held-out files: a path, or a path and the fields of a source.

    A file is omitted if a corpus cannot read all its texts, or if all its texts are too short to be searched for.
    """
    sources = ((path_of(file), _source_fields(file, labelled)) for file, labelled in held_out)
    return [{"path": str(path), **fields} if fields else str(path) for path, fields in sources if fields is not None]


def _source_fields(file: Single, labelled: Labelled[Any]) -> Mapping[str, str] | None:
    """Return the fields, without the path, of a corpus source that reads all texts of a file; None if none does."""
    from domainbert.corpus.known_texts import MIN_WORDS
    from domainbert.corpus.ngrams import words_of_text

    contents = (words_of_text(clean_sides([text_in(item.content)]).text) for item in labelled.items)
    expected = {tuple(words) for words in contents if len(words) >= MIN_WORDS}
    for fields in _candidate_fields(file) if expected else ():
        try:
            texts = excluded_texts([Source(str(path_of(file)), **fields)])
            if expected <= {tuple(words_of_text(text)) for text in texts}:
                return fields
        except DomainbertError:
            pass  # wrong fields for this file; try the next candidate
    return None


def _candidate_fields(file: Single) -> Iterator[dict[str, Any]]:
    """Yield possible fields of a source: the key of the texts and the format."""
    sample = read_sample(file, {})
    if sample.is_table and sample.kind != "lines":
        for key, value in sample.rows[0].items():
            if isinstance(value, str):
                yield {} if key == "text" else {"text_key": key}
                yield {"text_key": key, "format": "jsonl"}  # JSONL with another suffix
    else:
        yield {}
