"""Rows of files that hold a text and its labels each: JSONL, CSV, TSV. Free of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from domainbert.base.errors import Problems
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import Kind, look, tell_kind
from domainbert.corpus.json_values import is_whole_number, listed, problem_with_text, shown
from domainbert.corpus.rows import csv_rows, json_rows
from domainbert.tasks.label_names import NamesFormat, is_visible, label_names, number_of

_DELIMITERS: dict[Kind, str] = {"csv": ",", "tsv": "\t"}


class TextFormat(NamesFormat, Protocol):
    """Places of a text and its labels in a row."""

    @property
    def text_key(self) -> str:
        """Key or column of the text."""

    @property
    def label_key(self) -> str:
        """Key or column of its labels."""

    @property
    def kind(self) -> Literal["auto", "jsonl", "csv", "tsv"]:
        """Kind of the file."""


def file_kind(path: Path, asked: Kind | Literal["auto"], expected: tuple[Kind, ...]) -> Kind:
    """Kind of a file as the user says it, or its first lines; a stream is refused, for they would be lost."""
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
            self._rows = column_rows(path, self.kind, keys, problems)

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each row with its line."""
        for number, (line, row) in enumerate(self._rows):
            if not number:
                first = row if self.kind == "jsonl" else {}
                self.names = label_names(self.format, first, f"{self.path}:{line}")
            yield line, row


class LabelReader:
    """Names of labels from a file where they are strings or numbers, but not both without `names`.

    Args:
        key: key or column of the labels.
        names: what the numbers 0, 1, ... stand for, if they have names.
    """

    def __init__(self, key: str, names: Sequence[str] | None) -> None:
        self.key, self.names = key, names
        numbers = [(number, self._number(name)) for number, name in enumerate(names or ())]
        # 1 to 5 stars: "1" is the name of 0, and the number of "2"
        self._unclear = any(other is not None and other != number for number, other in numbers)
        self._first: tuple[bool, int] | None = None  # whether the first label is a number, and its line

    @property
    def nameless(self) -> bool:
        """The classes are numbers without names."""
        return self.names is None and self._first is not None and self._first[0]

    def problem_with(self, row: dict[str, Any], line: int) -> str:
        """Why the row has no label, or an empty string."""
        value = row.get(self.key)
        numbered = is_whole_number(value)
        if not numbered:
            problem = problem_with_text(row, self.key).replace("expected a string", "expected a string or whole number")
            if problem or not is_visible(str(value)):
                expected = "expected visible characters and no white space around them"
                return problem or f"{self.key!r} is {shown(value)}; {expected}"
        if self.names is not None:
            if self._unclear and not numbered and (value in self.names or self._number(value) is not None):
                found = f"label {shown(value)} may be a name or a number from 0, for the names are {listed(self.names)}"
                return f"{found}; expected names that are no such numbers, or no label_names where the labels are names"
            expected = f"expected one of {listed(self.names)}, or its number from 0"
            return "" if value in self.names or self._number(value) is not None else f"label {shown(value)}; {expected}"
        self._first = self._first or (numbered, line)
        if numbered != self._first[0]:
            words = [f"a {'number' if one else 'string'}" for one in (numbered, self._first[0])]
            return f"{self.key!r} is {shown(value)}, {words[0]}; expected {words[1]} as in line {self._first[1]}"
        return f"{self.key!r} is {shown(value)}; expected a number from 0" if numbered and int(str(value)) < 0 else ""

    def name(self, value: Any) -> str:
        """The name of a label without a problem."""
        if self.names is None or value in self.names:
            return str(value)
        number = self._number(value)
        assert number is not None
        return self.names[number]

    def _number(self, value: Any) -> int | None:
        assert self.names is not None
        return number_of(value, self.names)


def column_rows(
    path: Path, kind: Kind, keys: Sequence[str], problems: Problems
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of CSV or TSV below the header, by column name; each of `keys` is one column."""
    rows = csv_rows(path, _DELIMITERS[kind], problems)
    line, header = next(rows, (1, []))
    wrong = [key for key in keys if header and header.count(key) != 1]
    for key in wrong:
        found = f"{header.count(key) or 'no'} column{'s' if key in header else ''} {key!r}"
        problems.add(f"{path}:{line}: {found}; the header names {listed(header)}")
    if wrong:
        problems.raise_if_any()
    return ((line, dict(zip(header, columns, strict=True))) for line, columns in rows)
