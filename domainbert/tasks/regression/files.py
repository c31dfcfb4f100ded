"""Reader of texts with a number each in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from typing_extensions import override

from domainbert.base.errors import Problems, format_names
from domainbert.labelled.infer_columns import DECIMAL
from domainbert.labelled.items import PlainItem, ReaderCounts, TextFile, TextItem
from domainbert.labelled.row_values import parse_rows, raise_problems, shown
from domainbert.labelled.rows import (
    has_json_values,
    iterate_text_rows,
    require_texts,
    text_fields,
    text_problems,
    with_location,
)
from domainbert.labelled.sets import Readable, path_of
from domainbert.tasks.regression.config import Regression

_MAX_NUMBER = 1e30  # the maximum of float32 is 3.4e38


@dataclass(frozen=True)
class NumberedText(TextItem):
    """A text or pair with its number and line number."""

    number: float
    line: int
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class NumberFile(TextFile[NumberedText]):
    """A file of texts with numbers."""

    @override
    def plain_item(self, item: NumberedText) -> PlainItem:
        return replace(super().plain_item(item), target=item.number)

    @property
    def summary(self) -> str:
        """Return a line with the file format, the number of texts, and the range of their numbers."""
        numbers = [item.number for item in self.items]
        return f"{super().summary}; numbers from {min(numbers):g} to {max(numbers):g}, mean {fmean(numbers):g}"


def read(config: Regression, file: Readable) -> NumberFile:
    """Return the texts of a file in JSONL, or CSV or TSV with a header, with one number each, for `TaskConfig.read`.

    Files in .gz and .zst are decompressed.

    Raises:
        DomainbertError: unknown format, unreadable file, no text; an invalid line; a missing key or an empty text; a
            value that is not a number, not finite, or beyond 1e30.
    """
    format, problems, notes = config.format, Problems(str(file)), ReaderCounts()
    kind, rows = iterate_text_rows(file, format, problems, notes)

    def parse(row: dict[str, Any], line: int) -> NumberedText:
        if not has_json_values(kind) and DECIMAL.fullmatch(row[format.label_key].strip()):
            row[format.label_key] = float(row[format.label_key])
        number_problem = with_location(_problem_with_number(row, format.label_key), file, line)
        raise_problems(*text_problems(row, format), number_problem)
        return NumberedText(**text_fields(row, format), number=float(row[format.label_key]), line=line)

    texts = require_texts(parse_rows(rows, problems, parse), format, problems)
    return NumberFile(path_of(file), texts, kind, notes=notes)


def _problem_with_number(row: dict[str, Any], key: str) -> str:
    """Return the reason why `row[key]` is not a valid target; "" if it is valid."""
    if key not in row:
        return f"no key {key!r}; found {format_names(row)} (set format.label_key)"
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        in_quotes = isinstance(value, str) and DECIMAL.fullmatch(value.strip())
        return f"{key!r} is {shown(value)}; expected a number{' without quotes' if in_quotes else ', such as 0.5'}"
    return "" if abs(value) <= _MAX_NUMBER else f"{key!r} is {shown(value)}; expected a number from -1e30 to 1e30"
