"""Tables of scores for the templates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.layout import format_interval, format_score
from domainbert.report.evaluations import Evaluation, System

_SHADES = 10  # shades of a cell: `h0` to `h10` in confusion.css
_MAX_ROWS = 300  # of a table on the page
# key, format and factor of each cost: seconds to milliseconds
_COSTS = (
    ("latency_1", "{:.2f}", 1e3),
    ("words_per_second", "{:,.0f}", 1),
    ("parameters", "{:,.0f}", 1),
    ("pieces_per_word", "{:.3f}", 1),
    ("spread", "±{:.0%}", 1),
)
_LABEL_SCORES = {"precision": "precision", "recall": "recall", "f1": "F1"}
_SLICE_SCORES = {"f1": "F1", "exact": "exact match", "right": "right as a whole"}
_NOT_FURTHER = re.compile(r".*_by_seed|cost|seeds|repaired_tags|support")
_IN_OTHER_TABLES = re.compile(r"(per|by)_.*|slices|confusion")
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


def count_cell(count: int) -> Number:
    """Return a table cell with a count, such as `12,345`."""
    return Number(f"{count:,}", count)


def score_cell(score: float | None, percent: bool, interval: Sequence[float] | None = None, sign: str = "") -> Number:
    """Return a table cell with a score, and the interval if it is known; the `sign` "+" marks positive numbers.

    A score of None is undefined and sorted first.
    """
    text = f"{format_score(score, percent, sign)} {format_interval(interval, percent, sign)}".rstrip()
    return Number(text, -math.inf if score is None else score)


def systems_table(evaluation: Evaluation) -> Table:
    """Return a table of the systems: score with interval, difference to the first system, seeds, costs."""
    metric = evaluation.metric
    # differences to the first system, by the name of the other system
    pairs = {pair.b: pair for pair in evaluation.pairs if pair.a == evaluation.systems[0].name}
    heads = ["system", f"{metric.name} [95 %]", *(["first minus this [95 %]"] if pairs else [])]
    heads += ["seeds", "one text, ms", "words/s", "parameters", "pieces/word", "spread of times"]
    rows: list[list[Cell]] = []
    for system in evaluation.systems:
        scores = system.scores
        row: list[Cell] = [system.name, score_cell(scores[metric.key], metric.percent, scores.get("interval"))]
        if pair := pairs.get(system.name):
            row.append(score_cell(pair.difference, metric.percent, pair.interval, sign="+"))
        elif pairs:
            row.append("")
        rows.append([*row, *_cost_cells(system)])
    return Table(_caption(evaluation), heads, rows)


def _caption(evaluation: Evaluation) -> str:
    """Return the test set, its number of labels and the settings of the bootstrap, as far as they are known."""
    facts = evaluation.facts
    parts = [str(facts["test"])] if facts.get("test") else []
    if facts.get("gold") is not None:
        parts.append(f"{facts['gold']:,} gold labels")
    if drawn := facts.get("bootstrap"):
        units = f"{drawn['units']:,} {drawn['unit']}"
        parts.append(f"intervals from {drawn['resamples']:,} resamples of {units} and of seeds")
    return "; ".join(parts)


def _cost_cells(system: System) -> list[Cell]:
    """Return the number of seeds and the costs of a system; a cell is empty if its value is unknown."""
    cost, seeds = system.scores.get("cost") or {}, system.scores.get("seeds")
    cells: list[Cell] = [Number(str(seeds), seeds) if seeds else ""]
    for key, template, factor in _COSTS:
        value = cost.get(key)
        cells.append("" if value is None else Number(template.format(factor * value), value))
    return cells


def further_table(evaluation: Evaluation) -> Table:
    """Return a table of all other numeric scores, without labels and slices: a row per score, a column per system."""
    scores = [_flat_scores(system.scores) for system in evaluation.systems]
    rows: list[list[Cell]] = []
    for name in _distinct_keys(scores):
        if name == evaluation.metric.key:
            continue
        values = [by_name.get(name) for by_name in scores]
        are_shares = all(value is None or abs(value) <= 1 for value in values)
        percent = are_shares and evaluation.metric.percent and not _NOT_PERCENT.search(name)
        row: list[Cell] = [_readable_name(name)]
        for value in values:
            if value is None:
                row.append("")
            else:
                row.append(score_cell(value, percent) if percent else Number(f"{value:,.4g}", value))
        rows.append(row)
    return Table("Other scores", ["score", *(system.name for system in evaluation.systems)], rows)


def _flat_scores(scores: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numeric scores by dotted name, except those in other tables: by label, by slice, confusion, costs."""
    numbers: dict[str, float] = {}
    for key, value in scores.items():
        if _NOT_FURTHER.fullmatch(key) or isinstance(value, bool):
            continue
        if isinstance(value, (int, float)):
            numbers[prefix + key] = value
        elif isinstance(value, dict) and not _IN_OTHER_TABLES.fullmatch(key):
            numbers |= _flat_scores(value, f"{prefix}{key}.")
    return numbers


def label_tables(evaluation: Evaluation) -> list[Table]:
    """Return tables of precision, recall and F1 of each label: the scores under `per_...`."""
    keys = _distinct_keys(system.scores for system in evaluation.systems)
    return [_table_by_name(evaluation, key, _LABEL_SCORES) for key in keys if key.startswith("per_")]


def slice_tables(evaluation: Evaluation) -> list[Table]:
    """Return tables of the scores of slices (subgroups of the test set): the scores under `by_...` and `slices`."""
    keys = _distinct_keys(system.scores for system in evaluation.systems)
    tables = [_table_by_name(evaluation, key, _SLICE_SCORES) for key in keys if key.startswith("by_")]
    slices = _distinct_keys(system.scores.get("slices", {}) for system in evaluation.systems)
    return tables + [_slice_table(evaluation, key) for key in slices]


def _distinct_keys(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return all distinct keys: systems of different runs may have different scores."""
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


def _table_by_name(evaluation: Evaluation, key: str, titles: Mapping[str, str]) -> Table:
    """Return a table of the scores under `key` (such as `per_label`): a row for each name, with its support.

    Each system has a column for each score in `titles` that any system has.
    """
    tables = [system.scores.get(key, {}) for system in evaluation.systems]  # of each system: scores by name
    # the scores that at least one system has
    columns = [score for score in titles if any(score in scores for table in tables for scores in table.values())]
    heads = [titles[score] for _ in tables for score in columns]
    spanning_heads = [("", 2), *((system.name, len(columns)) for system in evaluation.systems)]
    rows: list[list[Cell]] = []
    for name in _distinct_keys(tables):
        by_system = [table.get(name, {}) for table in tables]
        support = next((scores["support"] for scores in by_system if "support" in scores), None)
        row: list[Cell] = [name, "" if support is None else count_cell(support)]
        for scores in by_system:
            row += [score_cell(scores[score], percent=True) if score in scores else "" for score in columns]
        rows.append(row)
    return Table(_readable_name(key), ["", "support", *heads], rows, spanning_heads)


def _slice_table(evaluation: Evaluation, key: str) -> Table:
    """Return a table with a row for each value of the slicing key (with its number of texts), and the score of each
    system as columns."""
    by_system = [system.scores.get("slices", {}).get(key, {}) for system in evaluation.systems]
    rows: list[list[Cell]] = []
    for value in _distinct_keys(by_system):
        first = next(slices[value] for slices in by_system if value in slices)
        row: list[Cell] = [value + (" (few)" if first.get("few") else ""), count_cell(first["count"])]
        for slices in by_system:
            scores = slices.get(value, {})
            # the only other key is the name of the metric
            score = next((scores[name] for name in scores if name not in ("count", "interval", "few")), None)
            percent = evaluation.metric.percent
            row.append("" if score is None else score_cell(score, percent, scores.get("interval")))
        rows.append(row)
    return Table(f"by {key}", [key, "texts", *(f"{system.name} [95 %]" for system in evaluation.systems)], rows)


def _readable_name(key: str) -> str:
    """Return the dotted name of a score for a table: `lenient.exact_match` as `lenient, exact match`."""
    return key.replace("_", " ").replace(".", ", ")


def confusions(evaluation: Evaluation, max_labels: int = 30) -> list[dict[str, Any]]:
    """Return the variables of `confusion.html` for each system that has a confusion matrix.

    They are `system`, `labels` (the `max_labels` most frequent labels), `rows` of cells of the matrix, and `left_out`,
    the number of other labels.
    """
    matrices = []
    for system in evaluation.systems:
        confusion = system.scores.get("confusion", {})
        if not confusion.get("labels"):
            continue
        labels, counts = confusion["labels"], confusion["counts"]
        columns = zip(*counts, strict=True)
        totals = [sum(row) + sum(column) for row, column in zip(counts, columns, strict=True)]  # gold plus predicted
        by_frequency = sorted(range(len(labels)), key=lambda index: -totals[index])
        shown = sorted(by_frequency[:max_labels])  # in the order of the matrix
        rows = [list(_confusion_cells(labels, counts[gold], gold, shown)) for gold in shown]
        shown_labels = [labels[index] for index in shown]
        left_out = len(labels) - len(shown)
        matrices.append({"system": system.name, "labels": shown_labels, "rows": rows, "left_out": left_out})
    return matrices


def _confusion_cells(
    labels: Sequence[str], row: Sequence[float], gold: int, columns: Iterable[int]
) -> Iterator[tuple[str, int, str]]:
    """Yield text, shade and tooltip of the cells in the `row` of the label with index `gold`.

    The shade, from 0 to 10, shows the share of the row. `columns` are the indices of the shown labels.
    """
    total = sum(row) or 1  # 1 for a row of zeros
    for column in columns:
        share = row[column] / total
        text = f"{row[column]:,.1f}".removesuffix(".0") if row[column] else ""
        tip = f"gold {labels[gold]}, predicted {labels[column]}\n{text or 0} ({100 * share:.1f} % of the row)"
        yield text, round(_SHADES * share), tip
