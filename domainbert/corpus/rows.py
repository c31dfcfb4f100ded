"""Read rows of JSONL, JSON and CSV files with their line numbers, or rows in memory.

Invalid rows are skipped and added to `problems`.
"""

from __future__ import annotations

import csv
import json
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import Problems
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, read_lines, read_text

_SPACE = re.compile(r"[ \t\r\n]*")
_ARRAY = re.compile(r"\s*\[\s*(\{|$)")  # the beginning of the first line of an array


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
                problems.add(f"{self}:{number}: found {type(row).__name__}; expected a mapping of columns to values")


def _as_json(value: Any) -> Any:
    """Return a value with JSON types: tuples and arrays become lists, keys become strings."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return _as_json(value.tolist()) if hasattr(value, "tolist") else value  # an array or number of NumPy or torch


def json_rows(
    path: Path | Rows, problems: Problems, lines: Iterable[tuple[int, str]] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield `(number, object)` of each row of a JSON Lines file, a JSON array, or rows in memory.

    The number is the line number in JSON Lines, otherwise the number of the row from 1 (the objects of an array may all
    be on one line). `lines` are the numbered lines of the file, if they are already read. Skips blank lines. Problems
    are lines that are not a JSON object, or have a duplicate key (`json` would drop one).
    """
    if isinstance(path, Rows):
        yield from path.numbered(problems)
        return
    all_lines = iter(read_lines(path) if lines is None else lines)
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
            problems.add(f"{path}:{line}: not JSON ({found}); expected an object per line")
            continue
        except (ValueError, RecursionError) as error:  # a duplicate key, a number too long for Python, too deep nesting
            problems.add(f"{path}:{line}: JSON that cannot be read ({error}); expected an object per line")
            continue
        if isinstance(row, dict):
            yield line, row
        else:
            problems.add(f"{path}:{line}: a JSON {type(row).__name__}; expected an object per line")


def _array_objects(path: Path, text: str, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield `(number from 1, object)` of each object of the JSON array `text`; other values are problems."""
    for number, (_, value) in enumerate(array_rows(path, problems, text), 1):
        if isinstance(value, dict):
            yield number, value
        else:
            problems.add(f"{path}: row {number} of the list is a JSON {type(value).__name__}; expected an object")


def array_rows(path: Path, problems: Problems, text: str | None = None) -> Iterator[tuple[int, Any]]:
    """Yield `(line number, value)` of each value of a JSON array; `text` is the content of the file if it is already
    read. Invalid JSON adds a problem and ends the reading; so does a file that is not an array."""
    text = read_text(path) if text is None else text
    decoder = json.JSONDecoder(object_pairs_hook=object_with_unique_keys)
    position = _skip_white_space(text, 0)
    if not text.startswith("[", position):
        problems.add(f"{path}:1: no JSON array; expected a list of objects")
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
            problems.add(f"{path}:{error.lineno}: not JSON ({error.msg}); expected a list of objects")
            return
        except (ValueError, RecursionError) as error:
            problems.add(f"{path}:{line}: JSON that cannot be read ({error}); expected a list of objects")
            return
        yield line, value
        position = _skip_white_space(text, position)
        after_comma = text.startswith(",", position)
        if after_comma:
            position = _skip_white_space(text, position + 1)
        elif not text.startswith("]", position):
            line += text.count("\n", counted, position)
            problems.add(f"{path}:{line}: the list is not closed; expected , or ]")
            return
    if rest := text[position + 1 :].strip():
        problems.add(f"{path}: {reprlib.repr(rest)} after the list; expected the end of the file")


def _skip_white_space(text: str, position: int) -> int:
    """Return the position of the next character that is not white space."""
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
    path: Path,
    delimiter: str,
    problems: Problems,
    quoted: bool = True,
    numbered_lines: Iterable[tuple[int, str]] | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Yield `(line number, columns)` of the header and of each row of a CSV file; skip blank lines.

    The delimiter is a semicolon if the header has semicolons and no comma. With `quoted` False a quote is an ordinary
    character; otherwise quoted fields may contain line breaks. `numbered_lines` are the lines of the file, if
    they are already read.

    Problems are rows of a wrong width, and broken quoting, which ends the reading. In TSV, a quoted field over several
    lines is a problem, too, if each of the lines would be a valid row: in a file without quoting, a text that begins
    with a quote would swallow the rows below.
    """
    csv.field_size_limit(MAX_DOCUMENT_BYTES)  # Python's default of 128 kB is too small for long documents
    lines: list[str] = []  # lines of the current row, appended while `csv` reads them
    file_lines = _yield_and_append(read_lines(path) if numbered_lines is None else numbered_lines, lines)
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
                problems.add(f"{path}:{begin}: {found}; expected {width} as in the header")
            elif delimiter == "\t" and (joined := _num_joined_rows(lines, width)):
                found = f"an unbalanced quote joins {joined} lines of {width} columns each, {reprlib.repr(lines[0])}"
                problems.add(
                    f"{path}:{begin}: {found}; expected doubled quotes inside quoted texts, or for a task whose "
                    "files have quotes as ordinary characters, format.quoting: none"
                )
            elif columns:
                yield begin, columns
            begin = rows.line_num + 1
            lines.clear()
    except csv.Error as error:
        reason = str(error).replace("\t", "\\t")
        problems.add(f"{path}:{begin}: broken CSV ({reason}); expected columns separated by {delimiter!r}")


def _num_joined_rows(lines: list[str], width: int) -> int:
    """Return the number of non-blank lines of a TSV row if there are several and each would be a valid row; else 0."""
    non_blank = [line for line in lines if line.strip()]
    would_be_rows = width > 1 and all(line.count("\t") == width - 1 for line in non_blank)
    return len(non_blank) if len(non_blank) > 1 and would_be_rows else 0


def _yield_and_append(numbered_lines: Iterable[tuple[int, str]], lines: list[str]) -> Iterator[str]:
    """Yield the lines with their line breaks, and append each to `lines`."""
    for _, line in numbered_lines:
        lines.append(line)
        yield line + "\n"
