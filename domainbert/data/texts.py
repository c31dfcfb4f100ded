"""Texts to predict on, streamed: rows come out in the order of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from domainbert.corpus.files import format_suffix, read_lines
from domainbert.corpus.rows import json_rows
from domainbert.data.conll import read_words
from domainbert.errors import DomainbertError, Problems

FORMATS = {
    ".txt": "lines",
    ".jsonl": "jsonl",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".tsv": "conll",
}
"""Suffix to format."""

Item = tuple[dict[str, Any], list[str] | None]


def read_texts(path: Path, format: str, text_key: str, token_column: int | str) -> Iterator[Item]:
    """Rows with their text under `text_key`, each with the words of which CoNLL makes it, or None.

    Args:
        path: plain, .gz or .zst.
        format: `lines` (a text a line), `jsonl`, `conll`, or `auto` to go by the suffix.
        text_key: key of the text in JSONL; an object's other keys are kept.
        token_column: column of the words in CoNLL.

    Raises:
        DomainbertError: unknown suffix, unreadable file, a broken line.
    """
    kind = FORMATS.get(format_suffix(path)) if format == "auto" else format
    if kind == "conll":
        return (({text_key: " ".join(words)}, words) for words in read_words(path, token_column))
    if kind == "jsonl":
        return _json_rows(path, text_key)
    if kind == "lines":
        return (({text_key: text}, None) for _, text in read_lines(path))
    raise DomainbertError(f"{path}: unknown suffix; expected {' '.join(FORMATS)}, or `format` to say what it is")


def _json_rows(path: Path, text_key: str) -> Iterator[Item]:
    problems = Problems(str(path), most=1)  # rows are predicted as they are read, so the first problem ends it
    for line, row in json_rows(path, problems):
        if not isinstance(row.get(text_key), str):
            problems.add(f"{path}:{line}: no string under {text_key!r}; expected an object with one (text_key)")
        if problem := _why_not_writable(row):
            problems.add(f"{path}:{line}: {problem}")
        yield row, None


def _why_not_writable(row: dict[str, Any]) -> str:
    """Why the row cannot stand in the predictions, where all its keys are kept; or an empty string."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "half a surrogate pair; expected valid Unicode"
    except RecursionError:
        return "nested too deep to be written again; expected a flatter object"
    return ""
