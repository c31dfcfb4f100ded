"""The reader of rows below all formats: opens a file once, reads its lines, or its rows of JSONL, JSON, CSV and TSV,
with their line numbers. Rows in memory are read in the same way. Invalid rows are skipped and added to `problems`."""

from __future__ import annotations

import csv
import json
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import FileKind, Kind, detect_kind, first_lines
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, Line, read_lines, read_text

Row = dict[str, Any]
"""A row of a file: value by key or column."""

TYPED_KINDS: tuple[Kind, ...] = ("jsonl", "rows")
"""Kinds of files whose values have types, as in JSON; columns of CSV are strings."""

_SPACE = re.compile(r"[ \t\r\n]*")
_ARRAY = re.compile(r"\s*\[\s*(\{|$)")  # the beginning of the first line of an array
_EXPORT = re.compile(r"\s*\[\s*[\[{\]]")  # the beginning of an array of objects or lists, or of an empty array
_DELIMITERS: dict[Kind, str] = {"csv": ",", "tsv": "\t"}
_SEPARATED: dict[Kind, str] = {
    "csv": "commas or semicolons (for tabs, set format.kind to tsv)",
    "tsv": "tabs (for commas or semicolons, set format.kind to csv)",
}


@dataclass(frozen=True)
class Rows:
    """Rows in memory or of a dataset; each row maps columns to values."""

    name: str
    """Name in place of the path in messages: the third row is `NAME:3`."""

    rows: Iterable[Mapping[str, Any]]
    """The rows; they are iterated again for each read."""

    slices: Mapping[str, str] = field(default_factory=dict)
    """Name and value of each slice (subgroup for evaluation) that contains all rows, such as `{"year": "2020"}`."""

    def __str__(self) -> str:
        return self.name

    def numbered(self, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield `(number from 1, copy of the row)`, with JSON types: tuples and arrays become lists."""
        for number, row in enumerate(self.rows, 1):
            if isinstance(row, Mapping):
                yield number, {str(key): _as_json(value) for key, value in row.items()}
            else:
                problems.add(
                    file=self, line=number, found=type(row).__name__, expected="a mapping of columns to values"
                )


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return _as_json(value.tolist()) if hasattr(value, "tolist") else value  # an array or number of NumPy or torch


@dataclass(frozen=True)
class OpenFile:
    """A file that is opened once and read from beginning to end, or rows in memory."""

    source: Path | Rows
    kind: Kind
    lines: Iterator[Line]
    """Numbered lines of the file, also those from which the kind was detected."""
    columns: int | None = None
    """Number of columns in the first row of a CoNLL file whose kind was detected."""

    def rows(
        self, problems: Problems, keys: Sequence[str] = (), quoted: bool = True, hint: str = ""
    ) -> Iterator[tuple[int, Row]]:
        """Return an iterator over the `(line, row)` pairs of JSONL, CSV or TSV, or of rows in memory.

        With `quoted` False, a quote in CSV or TSV is an ordinary character. Raise `DomainbertError` if a CSV header
        does not name each of `keys` exactly once; `hint` ends the message.
        """
        path, kind = self.source, self.kind
        if isinstance(path, Rows):
            return path.numbered(problems)
        if kind == "jsonl":
            return json_rows(path, self.lines, problems)
        rows = csv_rows(path, self.lines, _DELIMITERS[kind], problems, quoted)
        line, header = next(rows, (1, []))
        if len(header) == 1 < len(keys):  # probably another delimiter
            found = f"a single column, {format_names(header)}"
            raise DomainbertError(found, file=path, line=line, expected=f"columns separated by {_SEPARATED[kind]}")
        wrong = [key for key in keys if header and header.count(key) != 1]  # an empty file has no header
        for key in wrong:
            count, end = (f"{header.count(key)} columns", "") if key in header else ("no column", hint)
            problems.add(f"{count} {key!r}", file=path, line=line, hint=f"the header names {format_names(header)}{end}")
        if wrong:
            problems.raise_if_any()
        return ((line, dict(zip(header, columns, strict=True))) for line, columns in rows)


def open_file(
    source: Path | Rows,
    format: str,
    expected: Sequence[Kind],
    setting: str = "format.kind",
    may_be_stream: bool = False,
    reads_exports: bool = False,
) -> OpenFile:
    """Open a file of a kind that is set by the user (`format`), or detected from its first lines ("auto").

    Rows in memory are allowed where JSONL is. `setting` is the key of the format in messages. With `may_be_stream`, the
    path may be a pipe, which is read no further than its kind needs. With `reads_exports`, an array of objects or lists
    has the kind "json". Raise `DomainbertError` if no kind of `expected` is detected.
    """
    if isinstance(source, Rows):
        if "jsonl" not in expected:
            raise DomainbertError("rows in memory", where=source, expected="a file")
        return OpenFile(source, "rows", iter(()))
    if not may_be_stream:
        check_regular(source)
    lines: Iterator[Line] = read_lines(source)
    if format != "auto":
        return OpenFile(source, cast(Kind, format), lines)
    first = first_lines(lines)
    content = [line for _, line in first]
    is_export = reads_exports and _EXPORT.match("\n".join(content))
    detected = FileKind("json") if is_export else detect_kind(source, content, expected, setting)
    return OpenFile(source, detected.kind, chain(first, lines), detected.columns)


def json_rows(path: Path, lines: Iterable[Line], problems: Problems) -> Iterator[tuple[int, Row]]:
    """Yield `(number, object)` of each row in the lines of a JSON Lines file or a JSON array.

    The number is the line number in JSON Lines, otherwise the number of the row from 1 (the objects of an array may all
    be on one line). Skips blank lines. Problems are lines that are not a JSON object, or have a duplicate key (`json`
    would drop one).
    """
    all_lines = iter(lines)
    is_first = True  # whether no line but blank lines came before
    for line, content in all_lines:
        if not content.strip():
            continue
        if is_first and _ARRAY.match(content):
            following_lines = (following for _, following in all_lines)
            yield from _array_objects(path, "\n".join([content, *following_lines]), problems)
            return
        is_first = False
        try:
            row = json.loads(content, object_pairs_hook=object_with_unique_keys)
        except json.JSONDecodeError as error:
            found = f"{error.msg} at character {error.pos + 1} of {len(content):,}"
            problems.add(f"not JSON ({found})", file=path, line=line, expected="an object per line")
            continue
        except (ValueError, RecursionError) as error:  # a duplicate key, a number too long for Python, too deep nesting
            problems.add(f"JSON that cannot be read ({error})", file=path, line=line, expected="an object per line")
            continue
        if isinstance(row, dict):
            yield line, row
        else:
            problems.add(f"a JSON {type(row).__name__}", file=path, line=line, expected="an object per line")


def _array_objects(path: Path, text: str, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, (_, value) in enumerate(array_rows(path, problems, text), 1):
        if isinstance(value, dict):
            yield number, value
        else:
            problems.add(f"row {number} of the list is a JSON {type(value).__name__}", file=path, expected="an object")


def array_rows(path: Path, problems: Problems, text: str | None = None) -> Iterator[tuple[int, Any]]:
    """Yield `(line number, value)` of each value of a JSON array; `text` is the content of the file if it is already
    read. Invalid JSON adds a problem and ends the reading; so does a file that is not an array."""
    text = read_text(path) if text is None else text
    decoder = json.JSONDecoder(object_pairs_hook=object_with_unique_keys)
    position = _skip_white_space(text, 0)
    if not text.startswith("[", position):
        problems.add("no JSON array", file=path, line=1, expected="a list of objects")
        return
    position = _skip_white_space(text, position + 1)
    line = 1  # line number of the character at the position `counted`
    counted = 0
    after_comma = False
    while after_comma or not text.startswith("]", position):
        line += text.count("\n", counted, position)
        counted = position
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            problems.add(f"not JSON ({error.msg})", file=path, line=error.lineno, expected="a list of objects")
            return
        except (ValueError, RecursionError) as error:
            problems.add(f"JSON that cannot be read ({error})", file=path, line=line, expected="a list of objects")
            return
        yield line, value
        position = _skip_white_space(text, position)
        after_comma = text.startswith(",", position)
        if after_comma:
            position = _skip_white_space(text, position + 1)
        elif not text.startswith("]", position):
            line += text.count("\n", counted, position)
            problems.add("the list is not closed", file=path, line=line, expected=", or ]")
            return
    if rest := text[position + 1 :].strip():
        problems.add(f"{reprlib.repr(rest)} after the list", file=path, expected="the end of the file")


def _skip_white_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the JSON object of these pairs, for `object_pairs_hook`.

    Raise `ValueError` for a duplicate key, which `json` would drop.
    """
    row = dict(pairs)
    if len(row) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {reprlib.repr(counts.most_common(1)[0][0])} more than once")
    return row


def csv_rows(
    path: Path, numbered_lines: Iterable[Line], delimiter: str, problems: Problems, quoted: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yield `(line number, columns)` of the header and of each row in the lines of a CSV file; skip blank lines.

    The delimiter is a semicolon if the header has semicolons and no comma. With `quoted` False a quote is an ordinary
    character; otherwise quoted fields may contain line breaks.

    Problems are rows of a wrong width, and broken quoting, which ends the reading. In TSV, a quoted field over several
    lines is a problem, too, if each of the lines would be a valid row: in a file without quoting, a text that begins
    with a quote would swallow the rows below.
    """
    csv.field_size_limit(MAX_DOCUMENT_BYTES)  # Python's default of 128 kB is too small for long documents
    lines: list[str] = []  # lines of the current row, appended while `csv` reads them
    file_lines = _yield_and_append(numbered_lines, lines)
    first_lines: list[str] = []  # blank lines, and the header
    for line in file_lines:
        first_lines.append(line)
        if line.strip():
            if delimiter == "," and ";" in line and "," not in line:
                delimiter = ";"
            break
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    rows = csv.reader(chain(first_lines, file_lines), delimiter=delimiter, strict=True, quoting=quoting)
    begin, width = 1, 0  # line number of the first line of a row; number of columns of the header
    try:
        for columns in rows:
            width = width or len(columns)
            if columns and len(columns) != width:
                found = f"{len(columns)} column{'s' * (len(columns) > 1)}"
                problems.add(found, file=path, line=begin, expected=f"{width} as in the header")
            elif delimiter == "\t" and (joined := _num_joined_rows(lines, width)):
                found = f"an unbalanced quote joins {joined} lines of {width} columns each, {reprlib.repr(lines[0])}"
                problems.add(
                    found,
                    file=path,
                    line=begin,
                    expected="doubled quotes inside quoted texts, or for a task whose files have quotes as ordinary "
                    "characters, format.quoting: none",
                )
            elif columns:
                yield begin, columns
            begin = rows.line_num + 1
            lines.clear()
    except csv.Error as error:
        reason = str(error).replace("\t", "\\t")
        problems.add(f"broken CSV ({reason})", file=path, line=begin, expected=f"columns separated by {delimiter!r}")


def _num_joined_rows(lines: list[str], width: int) -> int:
    """Return the number of non-blank lines of a TSV row if there are several and each would be a valid row; else 0."""
    non_blank = [line for line in lines if line.strip()]
    would_be_rows = width > 1 and all(line.count("\t") == width - 1 for line in non_blank)
    return len(non_blank) if len(non_blank) > 1 and would_be_rows else 0


def _yield_and_append(numbered_lines: Iterable[Line], lines: list[str]) -> Iterator[str]:
    for _, line in numbered_lines:
        lines.append(line)
        yield line + "\n"
