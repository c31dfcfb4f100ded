"""Rows of JSONL, JSON and CSV files with their lines, or in memory; a broken row is noted as a problem, and reading
continues."""

from __future__ import annotations

import csv
import json
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import Problems
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, read_lines, read_text

_SPACE = re.compile(r"[ \t\r\n]*")
_ARRAY = re.compile(r"\s*\[\s*(\{|$)")  # the beginning of a line


@dataclass(frozen=True)
class Rows:
    """Rows in memory, or of a data set: each a mapping of columns to values."""

    name: str
    """Stands for the path in messages: the third row is `NAME:3`."""

    rows: Iterable[Mapping[str, Any]]
    """Iterated anew at each reading."""

    by: Mapping[str, str] = field(default_factory=dict)
    """Slices that all rows are in."""

    def __str__(self) -> str:
        return self.name

    def numbered(self, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
        """Copies of the rows with their numbers from 1, in the types of JSON: tuples and arrays become lists."""
        for number, row in enumerate(self.rows, 1):
            if isinstance(row, Mapping):
                yield number, {str(key): _as_json(value) for key, value in row.items()}
            else:
                found = f"{self}:{number}: found {type(row).__name__}"
                problems.add(f"{found}; expected a mapping of columns to values")


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return _as_json(value.tolist()) if hasattr(value, "tolist") else value  # an array or number of NumPy or torch


def json_rows(
    path: Path | Rows, problems: Problems, lines: Iterable[tuple[int, str]] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file with their lines, which may be given if they are read already; of a JSON array
    with their numbers from 1, as all of them may be in one line; or rows in memory.

    Blank lines hold none. Problems are the lines that are not JSON, not an object, or an object with the same key twice
    (`json` would drop one of them).
    """
    if isinstance(path, Rows):
        yield from path.numbered(problems)
        return
    all_lines, is_first = iter(read_lines(path) if lines is None else lines), True
    for line, content in all_lines:
        if not content.strip():
            continue
        if is_first and _ARRAY.match(content):
            yield from _objects_in(path, "\n".join([content, *(rest for _, rest in all_lines)]), problems)
            return
        is_first = False
        try:
            row = json.loads(content, object_pairs_hook=without_repeats)
        except json.JSONDecodeError as error:
            found = f"{error.msg} at character {error.pos + 1} of {len(content):,}"
            problems.add(f"{path}:{line}: not JSON ({found}); expected an object per line")
            continue
        except (ValueError, RecursionError) as error:  # a key twice, a number too long for Python, nested too deep
            problems.add(f"{path}:{line}: JSON that cannot be read ({error}); expected an object per line")
            continue
        if isinstance(row, dict):
            yield line, row
        else:
            problems.add(f"{path}:{line}: a JSON {type(row).__name__}; expected an object per line")


def _objects_in(path: Path, text: str, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, (_, value) in enumerate(_array_values(path, text, problems), 1):
        if isinstance(value, dict):
            yield number, value
        else:
            problems.add(f"{path}:{number}: a JSON {type(value).__name__}; expected objects in the list")


def array_rows(path: Path, problems: Problems) -> Iterator[tuple[int, Any]]:
    """The values of a JSON file that is one array, each with the line where it begins.

    What is no JSON is noted as a problem, and reading ends there; so is a file that is no array.
    """
    return _array_values(path, read_text(path), problems)


def _array_values(path: Path, text: str, problems: Problems) -> Iterator[tuple[int, Any]]:
    decoder = json.JSONDecoder(object_pairs_hook=without_repeats)
    place, counted, line, more = _after_space(text, 0), 0, 1, ""
    if not text.startswith("[", place):
        problems.add(f"{path}:1: no JSON array; expected a list of objects")
        return
    place = _after_space(text, place + 1)
    while not text.startswith("]", place) or more:
        line, counted = line + text.count("\n", counted, place), place
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            problems.add(f"{path}:{error.lineno}: not JSON ({error.msg}); expected a list of objects")
            return
        except (ValueError, RecursionError) as error:
            problems.add(f"{path}:{line}: JSON that cannot be read ({error}); expected a list of objects")
            return
        yield line, value
        place = _after_space(text, place)
        more = "," if text.startswith(",", place) else ""
        place = _after_space(text, place + len(more))
        if not more and not text.startswith("]", place):
            problems.add(
                f"{path}:{line + text.count(chr(10), counted, place)}: the list is not closed; expected , or ]"
            )
            return
    if rest := text[place + 1 :].strip():
        problems.add(f"{path}: {reprlib.repr(rest)} behind the list; expected nothing")


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object for `object_pairs_hook`; `ValueError` if a key is there twice, of which `json` would drop one."""
    row = dict(pairs)
    if len(row) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {reprlib.repr(counts.most_common(1)[0][0])} more than once")
    return row


def csv_rows(path: Path, delimiter: str, problems: Problems, quoted: bool = True) -> Iterator[tuple[int, list[str]]]:
    """The header of a CSV file and its rows, each with the line where it begins; blank lines hold none.

    Columns of a CSV whose header has semicolons and no comma are separated by semicolons. Unless the file is `quoted`,
    a quote is a character like any other.

    Fields may hold line breaks inside double quotes. Problems are the rows that are not as wide as the header, broken
    quoting, after which reading ends, and in TSV several lines in quotes that are rows without them: where texts are
    not quoted, one that begins with a quote would swallow the rows below it.
    """
    csv.field_size_limit(MAX_DOCUMENT_BYTES)  # Python's own limit of 128 kB is less than a long document
    lines: list[str] = []  # of the row that is being read
    noted = _noted(path, lines)
    header = list(islice(noted, 1))
    if delimiter == "," and ";" in "".join(header) and "," not in header[0]:
        delimiter = ";"
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    rows = csv.reader(chain(header, noted), delimiter=delimiter, strict=True, quoting=quoting)
    begin, width = 1, 0
    try:
        for columns in rows:
            width = width or len(columns)
            if columns and len(columns) != width:
                problems.add(f"{path}:{begin}: {len(columns)} columns; expected {width} as in the header")
            elif delimiter == "\t" and (joined := _rows_in_quotes(lines, width)):
                found = f"a quote joins {joined} lines that are {width} columns each, {reprlib.repr(lines[0])}"
                problems.add(
                    f"{path}:{begin}: {found}; expected a quote in a text to be doubled, and the text in quotes, or "
                    "`quoting: none`"
                )
            elif columns:
                yield begin, columns
            begin = rows.line_num + 1
            lines.clear()
    except csv.Error as error:
        reason = str(error).replace("\t", "\\t")
        problems.add(f"{path}:{begin}: broken CSV ({reason}); expected columns separated by {delimiter!r}")


def _rows_in_quotes(lines: list[str], width: int) -> int:
    """The number of filled lines that a row of TSV was read from, if each is a row by itself; else 0."""
    filled = [line for line in lines if line.strip()]
    return len(filled) if len(filled) > 1 and all(line.count("\t") == width - 1 > 0 for line in filled) else 0


def _noted(path: Path, lines: list[str]) -> Iterator[str]:
    """The lines of a file, each added to `lines` when it is read."""
    for _, line in read_lines(path):
        lines.append(line)
        yield line + "\n"
