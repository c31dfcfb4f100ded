"""A table of texts and numbers, for a terminal, in Markdown, or on a page (`report/templates/macros.html`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from domainbert.base.layout import format_interval, format_score, printable, width

_MARKDOWN = {"\\": "\\\\", "|": "\\|", "&": "&amp;", "<": "&lt;", "`": "\\`", "*": "\\*"}


@dataclass(frozen=True)
class Number:
    """A number in a table.

    Attributes:
        text: the formatted number.
        value: the number, by which a page sorts rows.
        interval: the formatted confidence interval; "" if there is none.
    """

    text: str
    value: float
    interval: str = ""

    def __str__(self) -> str:
        """Return the formatted number and interval."""
        return f"{self.text} {self.interval}".rstrip()


Cell = str | Number


def number_cell(value: float | None, template: str = "{:,}", factor: float = 1) -> Cell:
    """Return a cell with `factor * value`, formatted by `template.format`; an empty cell for None.

    >>> number_cell(12_345), number_cell(0.25, "{:.1f} %", factor=100), number_cell(None)
    (Number(text='12,345', value=12345, interval=''), Number(text='25.0 %', value=0.25, interval=''), '')
    """
    return "" if value is None else Number(template.format(factor * value), value)


def score_cell(
    score: float | None, percent: bool = True, interval: Sequence[float] | None = None, sign: str = ""
) -> Number:
    """Return a cell with a score and its confidence interval, formatted as by `format_score`. A score of None is
    undefined and sorted first."""
    value = -math.inf if score is None else score
    return Number(format_score(score, percent, sign), value, format_interval(interval, percent, sign))


@dataclass(frozen=True)
class Table:
    """Table with column heads; the first cell of a row is its name. Columns with numbers are aligned right.

    Attributes:
        heads: head of each column.
        rows: cells of each row.
        caption: title on a page.
        groups: row of heads above `heads`: text, and number of columns below it.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    groups: Sequence[tuple[str, int]] = ()

    def lines(self) -> list[str]:
        """Return the lines for a terminal, without control characters; columns are two spaces apart.

        A group is a part of the heads below it. Confidence intervals have their own column. Empty heads have no line.
        """
        groups = [group for group, count in self.groups for _ in range(count)] or [""] * len(self.heads)
        heads = [f"{group} {head}".strip() for group, head in zip(groups, self.heads, strict=True)]
        columns = [_aligned(texts, right=numeric) for texts, numeric in self._text_columns(heads)]
        lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
        return lines if any(self.heads) else lines[1:]

    def markdown(self) -> str:
        """Return the table in Markdown, its cells escaped. Confidence intervals have their own column."""
        columns = [list(map(_markdown_cell, texts)) for texts, _ in self._text_columns(self.heads)]
        heads, *rows = (f"| {' | '.join(row)} |" for row in zip(*columns, strict=True))
        return "\n".join([heads, "|---" * len(columns) + "|", *rows])

    @property
    def numeric(self) -> list[bool]:
        """Whether each column has numbers."""
        return [any(isinstance(cell, Number) for cell in column) for column in self._columns()]

    @property
    def with_interval(self) -> list[bool]:
        """Whether each column has confidence intervals."""
        return [any(isinstance(cell, Number) and cell.interval for cell in column) for column in self._columns()]

    def _columns(self) -> list[list[Cell]]:
        return [[row[index] for row in self.rows] for index in range(len(self.heads))]

    def _text_columns(self, heads: Sequence[str]) -> Iterator[tuple[list[str], bool]]:
        """Yield the texts of each column from the head down, and whether it has numbers."""
        for head, column, numeric in zip(heads, self._columns(), self.numeric, strict=True):
            yield [head, *(cell.text if isinstance(cell, Number) else cell for cell in column)], numeric
            intervals = [cell.interval if isinstance(cell, Number) else "" for cell in column]
            if any(intervals):
                yield ["95 % interval", *intervals], True


def _aligned(texts: Iterable[str], right: bool) -> list[str]:
    texts = list(map(printable, texts))
    columns = max(map(width, texts))
    spaces = [" " * (columns - width(text)) for text in texts]
    return [space + text if right else text + space for text, space in zip(texts, spaces, strict=True)]


def _markdown_cell(text: str) -> str:
    escaped = "".join(_MARKDOWN.get(char, char) for char in " ".join(text.split()))
    return escaped.replace("](", "]\\(")  # no link
