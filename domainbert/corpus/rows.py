"""Rows of JSONL and CSV files, each with its line number; a broken row is noted as a problem, and reading continues."""

from __future__ import annotations

import csv
import json
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from domainbert.base.errors import Problems
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, read_lines


def json_rows(
    path: Path, problems: Problems, lines: Iterable[tuple[int, str]] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file with their lines, which may be given if they are read already.

    Blank lines hold none. Problems are the lines that are not JSON, not an object, or an object with the same key twice
    (`json` would drop one of them).
    """
    for line, content in read_lines(path) if lines is None else lines:
        if not content.strip():
            continue
        try:
            row = json.loads(content, object_pairs_hook=_object)
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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {reprlib.repr(counts.most_common(1)[0][0])} more than once")
    return row


def csv_rows(path: Path, delimiter: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """The header of a CSV file and its rows, each with the line where it begins; blank lines hold none.

    Fields may hold line breaks inside double quotes. Problems are the rows that are not as wide as the header, and
    broken quoting, after which reading ends.
    """
    csv.field_size_limit(MAX_DOCUMENT_BYTES)  # Python's own limit of 128 kB is less than a long document
    rows = csv.reader((line + "\n" for _, line in read_lines(path)), delimiter=delimiter, strict=True)
    begin, width = 1, 0
    try:
        for columns in rows:
            width = width or len(columns)
            if columns and len(columns) != width:
                problems.add(f"{path}:{begin}: {len(columns)} columns; expected {width} as in the header")
            elif columns:
                yield begin, columns
            begin = rows.line_num + 1
    except csv.Error as error:
        reason = str(error).replace("\t", "\\t")
        problems.add(f"{path}:{begin}: broken CSV ({reason}); expected columns separated by {delimiter!r}")
