"""Texts with a number each in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from typing_extensions import override

from domainbert.base.errors import Problems, listed
from domainbert.corpus.file_kind import FileKind
from domainbert.labelled.infer_columns import DECIMAL
from domainbert.labelled.items import Notes, TextFile, TextItem
from domainbert.labelled.plain_items import PlainItem
from domainbert.labelled.row_values import parsed, refuse, shown
from domainbert.labelled.rows import has_json_values, placed, rows_of_texts, some_texts, text_fields, text_problems
from domainbert.labelled.sets import Readable, path_of
from domainbert.tasks.regression.config import Regression, RegressionFormat

_LARGEST = 1e30  # single precision ends at 3.4e38


@dataclass(frozen=True)
class NumberedText(TextItem):
    """A text or pair, its number, and the line of the file where it stands."""

    number: float
    line: int
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class NumberFile(TextFile[NumberedText]):
    """Contents of a file of texts with numbers."""

    @override
    def plain_item(self, item: NumberedText) -> PlainItem:
        return replace(super().plain_item(item), target=item.number)

    @property
    def summary(self) -> str:
        """A line with the kind of file, the number of texts, and the range of their numbers."""
        numbers = [item.number for item in self.items]
        said = f"{self.path}: {len(self.items):,} {self.unit}; {FileKind(self.kind)}"
        return f"{said}; numbers from {min(numbers):g} to {max(numbers):g}, mean {fmean(numbers):g}"


def read(config: Regression, file: Readable) -> NumberFile:
    """See `TaskConfig.read`."""
    return read_numbers(file, config.format)


def read_numbers(file: Readable, format: RegressionFormat | None = None) -> NumberFile:
    """Read texts with one number each from JSONL, CSV or TSV (the latter two with a header); .gz and .zst are unpacked.

    Raises:
        DomainbertError: a file whose kind cannot be told, unreadable file, no text; a broken line; a missing key or an
            empty text; a value that is no number, not finite, or beyond 1e30.
    """
    format, problems, notes = format or RegressionFormat(), Problems(str(file)), Notes()
    kind, rows = rows_of_texts(file, format, problems, notes)

    def parse(row: dict[str, Any], line: int) -> NumberedText:
        if not has_json_values(kind):
            row[format.label_key] = _in_digits(row[format.label_key])
        refuse(*text_problems(row, format), placed(_problem_with_number(row, format.label_key), file, line))
        return NumberedText(**text_fields(row, format), number=float(row[format.label_key]), line=line)

    texts = some_texts(parsed(rows, problems, parse), format, problems)
    return NumberFile(path_of(file), texts, kind, notes=notes)


def _in_digits(column: str) -> float | str:
    """The number that a column of CSV holds; the column where it holds none."""
    return float(column) if DECIMAL.fullmatch(column.strip()) else column


def _problem_with_number(row: dict[str, Any], key: str) -> str:
    """The reason why `row[key]` is no number to learn; empty if it is one."""
    if key not in row:
        return f"no key {key!r}; found {listed(row)}"
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{key!r} is {shown(value)}; expected a number"
    return "" if abs(value) <= _LARGEST else f"{key!r} is {shown(value)}; expected a number from -1e30 to 1e30"
