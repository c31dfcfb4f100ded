"""Rows of JSONL and CSV files, each with its line; what is no row is noted as a problem and reading goes on."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from domainbert.corpus.files import MAX_DOCUMENT_BYTES, read_lines
from domainbert.errors import Problems


def json_rows(path: Path, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file with their lines; blank lines hold none.

    Args:
        path: plain, .gz or .zst.
        problems: where lines are noted that are not JSON, or no object.

    Raises:
        DomainbertError: as `read_lines`.
    """
    for line, content in read_lines(path):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except (json.JSONDecodeError, RecursionError) as error:
            problems.add(f"{path}:{line}: not JSON ({error}); expected an object a line")
            continue
        if isinstance(row, dict):
            yield line, row
        else:
            problems.add(f"{path}:{line}: a JSON {type(row).__name__}; expected an object a line")


def csv_rows(path: Path, delimiter: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """The header of a CSV file and its rows, each with the line where it begins; blank lines hold none.

    Fields may hold line breaks inside double quotes.

    Args:
        path: plain, .gz or .zst.
        delimiter: between the columns.
        problems: where rows are noted that are not as wide as the header; and broken quoting, where reading ends.

    Raises:
        DomainbertError: as `read_lines`.
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
        problems.add(f"{path}:{begin}: broken CSV ({error}); expected columns separated by {delimiter!r}")
