"""Rows of files that hold a text and its labels each: JSONL, CSV, TSV. Free of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from domainbert.base.errors import Problems
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import Kind, look, tell_kind
from domainbert.corpus.json_values import listed
from domainbert.corpus.rows import csv_rows, json_rows
from domainbert.tasks.label_names import NamesFormat, label_names

_DELIMITERS: dict[Kind, str] = {"csv": ",", "tsv": "\t"}


class TextFormat(NamesFormat, Protocol):
    """Where a text and its labels stand in a row."""

    @property
    def text_key(self) -> str:
        """Key or column of the text."""

    @property
    def label_key(self) -> str:
        """Key or column of its labels."""

    @property
    def kind(self) -> Literal["auto", "jsonl", "csv", "tsv"]:
        """What the file is."""


def file_kind(path: Path, asked: Kind | Literal["auto"], expected: tuple[Kind, ...]) -> Kind:
    """What the user says the file is, or its first lines; a stream is refused, for they would be lost."""
    check_regular(path)
    return tell_kind(path, look(path), expected, "format.kind").kind if asked == "auto" else asked


class TextRows:
    """The rows of a file of texts, below the header of CSV or TSV.

    Args:
        path: plain, .gz or .zst.
        format: where texts and labels stand; its names of labels are those of `names`.
        problems: where broken rows are noted.

    Raises:
        DomainbertError: a file whose kind cannot be told, or a CSV whose columns are not those of the format.
    """

    def __init__(self, path: Path, format: TextFormat, problems: Problems) -> None:
        self.path, self.format = path, format
        self.kind = file_kind(path, format.kind, ("jsonl", "csv", "tsv"))
        self.names: list[str] | None = None
        """What the numbers 0, 1, ... stand for; known from the first row on."""
        if self.kind == "jsonl":
            self._rows = json_rows(path, problems)
        else:
            keys = format.text_key, format.label_key
            self._rows = _csv_rows(path, _DELIMITERS[self.kind], keys, problems)

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each row with its line."""
        for number, (line, row) in enumerate(self._rows):
            if not number:
                first = row if self.kind == "jsonl" else {}
                self.names = label_names(self.format, first, f"{self.path}:{line}")
            yield line, row


def _csv_rows(
    path: Path, delimiter: str, keys: Sequence[str], problems: Problems
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows below the header, by column name; each of `keys` is one column."""
    rows = csv_rows(path, delimiter, problems)
    line, header = next(rows, (1, []))
    wrong = [key for key in keys if header and header.count(key) != 1]
    for key in wrong:
        found = f"{header.count(key) or 'no'} column{'s' if key in header else ''} {key!r}"
        problems.add(f"{path}:{line}: {found}; the header names {listed(header)}")
    if wrong:
        problems.raise_if_any()
    return ((line, dict(zip(header, columns, strict=True))) for line, columns in rows)
