"""The held-out files of a labelled set as a corpus reads them, which leaves their texts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.corpus.config import Source
from domainbert.corpus.documents import clean_sides, excluded_texts
from domainbert.labelled.contents import text_in
from domainbert.labelled.file_sample import look_at
from domainbert.labelled.items import Labelled
from domainbert.labelled.sets import Single, path_of


def as_sources(held_out: Iterable[tuple[Single, Labelled[Any]]]) -> list[str | dict[str, str]]:
    """The files of which a corpus reads all the texts that it would look for, each as `exclude` names it; the others,
    and those without any such text, are left out."""
    found = ((path_of(file), _fields(file, read)) for file, read in held_out)
    return [{"path": str(path), **fields} if fields else str(path) for path, fields in found if fields is not None]


def _fields(file: Single, read: Labelled[Any]) -> Mapping[str, str] | None:
    """The fields of a source beside its path, with which the texts of a labelled file are read; None if none do."""
    from domainbert.corpus.known_texts import LEAST
    from domainbert.corpus.ngrams import words_of

    contents = (words_of(clean_sides([text_in(item.content)]).text) for item in read.items)
    wanted = {tuple(words) for words in contents if len(words) >= LEAST}
    for fields in _ways(file) if wanted else ():
        try:
            texts = excluded_texts([Source(str(path_of(file)), **fields)])
            if wanted <= {tuple(words_of(text)) for text in texts}:
                return fields
        except DomainbertError:
            pass  # a corpus is not read like this: another key, lines of another kind
    return None


def _ways(file: Single) -> Iterator[dict[str, Any]]:
    """Fields of a source that a labelled file may need: the key of its texts."""
    sample = look_at(file, {})
    if sample.is_table and sample.kind != "lines":
        for key, value in sample.rows[0].items():
            if isinstance(value, str):
                yield {} if key == "text" else {"text_key": key}
                yield {"text_key": key, "format": "jsonl"}  # of another suffix
    else:
        yield {}
