"""Reader of texts with a number each in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.corpus.rows import Row
from domainbert.labelled.infer_columns import DECIMAL
from domainbert.labelled.items import PlainItem, TextFile, TextItem
from domainbert.labelled.row_values import wrong_value
from domainbert.labelled.rows import TextRows
from domainbert.labelled.sets import Readable
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

    Raise `DomainbertError` as `TextRows`, and for a value that is not a number, not finite, or beyond 1e30.
    """
    source, key = TextRows(file, config.format), config.format.label_key

    def problem_with(row: Row, line: int) -> DomainbertError | None:
        if not source.has_types and DECIMAL.fullmatch(row[key].strip()):
            row[key] = float(row[key])
        return _problem_with_number(row, key)

    rows = source.valid_rows(problem_with)
    texts = [NumberedText(**fields, number=float(row[key]), line=line) for line, row, fields in rows]
    return NumberFile(source.path, source.require(texts), source.kind, notes=source.notes)


def _problem_with_number(row: Row, key: str) -> DomainbertError | None:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        in_quotes = isinstance(value, str) and DECIMAL.fullmatch(value.strip())
        expected = f"a number{' without quotes' if in_quotes else ', such as 0.5'}"
        return wrong_value(row, key, expected, "format.label_key")
    return None if abs(value) <= _MAX_NUMBER else wrong_value(row, key, "a number from -1e30 to 1e30")
