"""Tables of scores for the templates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.layout import format_interval, format_score
from domainbert.metrics.headline import Headline
from domainbert.report.evaluations import Evaluation, System

_SHADES = 10  # shades of a cell: `h0` to `h10` in confusion.css
_MAX_ROWS = 300  # of a table on the page
_LABEL_SCORES = {"precision": "precision", "recall": "recall", "f1": "F1"}
_SLICE_SCORES = {"f1": "F1", "exact": "exact match", "right": "right as a whole"}
_NOT_SHARES = ("seeds", "repaired_tags", "support")
_NOT_PERCENT = re.compile(r"^errors\.|\b(temperature|nll|brier)$|threshold$")  # never shown in %


@dataclass(frozen=True)
class Number:
    """A number in a table: its text, and the value for sorting."""

    text: str
    value: float


Cell = str | Number


@dataclass(frozen=True)
class Table:
    """Table with column heads; the first cell of a row is its name."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    spanning_heads: Sequence[tuple[str, int]] = ()
    """Second row of heads above `heads`: text and number of spanned columns."""

    @property
    def shown(self) -> Sequence[Sequence[Cell]]:
        """Rows on the page: the first rows of a long table."""
        return self.rows[:_MAX_ROWS]

    @property
    def numeric(self) -> list[bool]:
        """Whether each column has numbers, which are aligned right."""
        return [any(isinstance(row[column], Number) for row in self.rows) for column in range(len(self.heads))]


def score_cell(value: float | None, percent: bool, sign: str = "") -> Number:
    """Return a table cell with a score, in percent if `percent`; a score of None is undefined and sorted first."""
    return Number(format_score(value, percent, sign), _sortable(value))


def systems_table(evaluation: Evaluation) -> Table:
    """Return a table of the systems: score with interval, difference to the first system, seeds, costs."""
    metric = evaluation.metric
    pairs = {pair.b: pair for pair in evaluation.pairs if pair.a == evaluation.systems[0].name}
    heads = ["system", f"{metric.name} [95 %]", *(["first minus this [95 %]"] if pairs else [])]
    heads += ["seeds", "one text, ms", "words/s", "parameters", "pieces/word"]
    rows: list[list[Cell]] = []
    for system in evaluation.systems:
        row: list[Cell] = [
            system.name,
            _with_interval(system.scores[metric.key], system.scores.get("interval"), metric),
        ]
        if pairs:
            pair = pairs.get(system.name)
            row.append(_with_interval(pair.difference, pair.interval, metric, "+") if pair else "")
        rows.append([*row, *_cost_cells(system)])
    return Table(_caption(evaluation), heads, rows)


def _with_interval(value: float | None, bounds: Sequence[float] | None, metric: Headline, sign: str = "") -> Number:
    interval = f" {format_interval(bounds, metric.percent, sign)}" if bounds else ""
    return Number(format_score(value, metric.percent, sign) + interval, _sortable(value))


def _sortable(value: float | None) -> float:
    return -math.inf if value is None else value


def _caption(evaluation: Evaluation) -> str:
    facts = evaluation.facts
    drawn = facts.get("bootstrap") or {}
    parts = [str(facts["test"])] if facts.get("test") else []
    parts += [f"{facts['gold']:,} gold labels"] if facts.get("gold") is not None else []
    if drawn:
        parts.append(
            f"intervals from {drawn['resamples']:,} resamples of {drawn['units']:,} {drawn['unit']} and of seeds"
        )
    return "; ".join(parts)


def _cost_cells(system: System) -> list[Cell]:
    cost, seeds = system.scores.get("cost") or {}, system.scores.get("seeds")
    formats = {"latency_1": ("{:.2f}", 1e3), "words_per_second": ("{:,.0f}", 1), "parameters": ("{:,.0f}", 1)}
    cells: list[Cell] = [Number(str(seeds), seeds) if seeds else ""]
    for key, (template, scale) in {**formats, "pieces_per_word": ("{:.3f}", 1)}.items():
        cells.append(Number(template.format(scale * cost[key]), cost[key]) if cost.get(key) is not None else "")
    return cells


def further_table(evaluation: Evaluation) -> Table:
    """Return a table of all other scores that are numbers, by dotted name, with a column per system."""
    scores = [_flat_scores(system.scores) for system in evaluation.systems]
    rows: list[list[Cell]] = []
    for name in _distinct_keys(scores):
        if name == evaluation.metric.key:
            continue
        values = [by_name.get(name) for by_name in scores]
        percent = all(value is None or abs(value) <= 1 for value in values) and evaluation.metric.percent
        percent = percent and not _NOT_PERCENT.search(name)
        rows.append(
            [_readable_name(name), *("" if value is None else _number_cell(value, percent) for value in values)]
        )
    return Table("Other scores", ["score", *(system.name for system in evaluation.systems)], rows)


def _number_cell(value: float, percent: bool) -> Number:
    return score_cell(value, True) if percent else Number(f"{value:,.4g}", value)


def _flat_scores(scores: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numeric scores by dotted name, without the scores of labels and slices, which have separate tables."""
    numbers: dict[str, float] = {}
    for key, value in scores.items():
        if isinstance(value, bool) or key in _NOT_SHARES or key == "cost" or key.endswith("_by_seed"):
            continue
        if isinstance(value, (int, float)):
            numbers[prefix + key] = value
        elif isinstance(value, dict) and not key.startswith(("per_", "by_")) and key not in ("slices", "confusion"):
            numbers |= _flat_scores(value, f"{prefix}{key}.")
    return numbers


def label_tables(evaluation: Evaluation) -> list[Table]:
    """Return tables of precision, recall and F1 of each label: the scores under `per_...`."""
    keys = _distinct_keys(system.scores for system in evaluation.systems)
    return [_table_by_name(evaluation, key, _LABEL_SCORES) for key in keys if key.startswith("per_")]


def slice_tables(evaluation: Evaluation) -> list[Table]:
    """Return tables of the scores of slices (subgroups of the test set): `by_...`, such as length, and `slices`."""
    keys = _distinct_keys(system.scores for system in evaluation.systems)
    tables = [_table_by_name(evaluation, key, _SLICE_SCORES) for key in keys if key.startswith("by_")]
    slices = _distinct_keys(system.scores.get("slices", {}) for system in evaluation.systems)
    return tables + [_slice_table(evaluation, key) for key in slices]


def _distinct_keys(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return all distinct keys: systems of different runs may have different scores."""
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


def _table_by_name(evaluation: Evaluation, key: str, titles: Mapping[str, str]) -> Table:
    """Return a table with a row for each name (with its support), and the existing scores of each system as columns."""
    scored = [item for system in evaluation.systems for item in system.scores.get(key, {}).items()]
    names = list(dict.fromkeys(name for name, _ in scored))
    parts = [part for part in titles if any(part in scores for _, scores in scored)]
    heads = [titles[part] for _ in evaluation.systems for part in parts]
    spanning_heads = [("", 2), *((system.name, len(parts)) for system in evaluation.systems)]
    rows: list[list[Cell]] = []
    for name in names:
        by_system = [system.scores.get(key, {}).get(name, {}) for system in evaluation.systems]
        support = next((scores["support"] for scores in by_system if "support" in scores), None)
        cells = [score_cell(scores[part], True) if part in scores else "" for scores in by_system for part in parts]
        rows.append([name, "" if support is None else Number(f"{support:,}", support), *cells])
    return Table(_readable_name(key), ["", "support", *heads], rows, spanning_heads)


def _slice_table(evaluation: Evaluation, key: str) -> Table:
    metric = evaluation.metric
    by_system = [system.scores.get("slices", {}).get(key, {}) for system in evaluation.systems]
    rows: list[list[Cell]] = []
    for value in _distinct_keys(by_system):
        first = next(slices[value] for slices in by_system if value in slices)
        count = Number(f"{first['count']:,}", first["count"])
        row: list[Cell] = [value + (" (few)" if first.get("few") else ""), count]
        for slices in by_system:
            scores = slices.get(value, {})
            result = next((scores[name] for name in scores if name not in ("count", "interval", "few")), None)
            row.append("" if result is None else _with_interval(result, scores.get("interval"), metric))
        rows.append(row)
    return Table(f"by {key}", [key, "texts", *(f"{system.name} [95 %]" for system in evaluation.systems)], rows)


def _readable_name(key: str) -> str:
    return key.replace("_", " ").replace(".", ", ")


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix: counts by gold and predicted label, and a shade from 0 to 10 by the share of the row."""

    system: str
    labels: list[str]
    rows: list[list[tuple[str, int, str]]]
    """Text, shade and tooltip of each cell."""
    left_out: int
    """Number of rare labels that are not shown."""


def confusions(evaluation: Evaluation, max_labels: int = 30) -> list[Confusion]:
    """Return the confusion matrices of the systems that have one, with the `max_labels` most frequent labels."""
    return [
        _confusion_matrix(system.name, system.scores["confusion"], max_labels)
        for system in evaluation.systems
        if system.scores.get("confusion", {}).get("labels")
    ]


def _confusion_matrix(system: str, confusion: Mapping[str, Any], max_labels: int) -> Confusion:
    labels, counts = confusion["labels"], confusion["counts"]
    by_frequency = sorted(range(len(labels)), key=lambda index: -sum(counts[index]) - sum(row[index] for row in counts))
    shown = sorted(by_frequency[:max_labels])
    rows = [list(_confusion_cells(labels, counts[index], index, shown)) for index in shown]
    return Confusion(system, [labels[index] for index in shown], rows, len(labels) - len(shown))


def _confusion_cells(
    labels: Sequence[str], row: Sequence[float], gold: int, shown: Iterable[int]
) -> Iterator[tuple[str, int, str]]:
    total = sum(row) or 1
    for column in shown:
        share = row[column] / total
        text = f"{row[column]:,.1f}".removesuffix(".0") if row[column] else ""
        tip = f"gold {labels[gold]}, predicted {labels[column]}\n{text or 0} ({100 * share:.1f} % of the row)"
        yield text, round(_SHADES * share), tip
