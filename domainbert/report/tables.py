"""Tables of scores, as a template sets them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.scores import shown_interval, shown_score
from domainbert.metrics.headline import Headline
from domainbert.report.evaluations import Evaluation, System

_SHADES = 10
_MOST_ROWS = 300
_LABELLED = {"precision": "precision", "recall": "recall", "f1": "F1"}
_SLICED = {"f1": "F1", "exact": "exact match", "right": "right as a whole"}
_NOT_SHARES = ("seeds", "repaired_tags", "support")
_IN_UNITS = re.compile(r"^errors\.|\b(temperature|nll|brier)$|threshold$")  # shown as they are, below 1, too


@dataclass(frozen=True)
class Number:
    """A number in a table: as it is read, and as rows are sorted by it."""

    text: str
    value: float


Cell = str | Number


@dataclass(frozen=True)
class Table:
    """Rows under heads; the first cell of a row names it."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    over: Sequence[tuple[str, int]] = ()
    """Heads above the heads, each with the number of columns that it spans."""

    @property
    def shown(self) -> Sequence[Sequence[Cell]]:
        """The rows that the page has room for."""
        return self.rows[:_MOST_ROWS]

    @property
    def numeric(self) -> list[bool]:
        """Whether the cells of each column are numbers, which stand to the right."""
        return [any(isinstance(row[place], Number) for row in self.rows) for place in range(len(self.heads))]


def score(value: float | None, percent: bool, sign: str = "") -> Number:
    """A score as it is shown everywhere."""
    return Number(shown_score(value, percent, sign), _sortable(value))


def systems_table(evaluation: Evaluation) -> Table:
    """Score, interval, difference to the first system and cost of each system."""
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
        rows.append([*row, *_cost(system)])
    return Table(_caption(evaluation), heads, rows)


def _with_interval(value: float | None, bounds: Sequence[float] | None, metric: Headline, sign: str = "") -> Number:
    shown = f" {shown_interval(bounds, metric.percent, sign)}" if bounds else ""
    return Number(shown_score(value, metric.percent, sign) + shown, _sortable(value))


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


def _cost(system: System) -> list[Cell]:
    cost, seeds = system.scores.get("cost") or {}, system.scores.get("seeds")
    shown = {"latency_1": ("{:.2f}", 1e3), "words_per_second": ("{:,.0f}", 1), "parameters": ("{:,.0f}", 1)}
    cells: list[Cell] = [Number(str(seeds), seeds) if seeds else ""]
    for key, (form, scale) in {**shown, "pieces_per_word": ("{:.3f}", 1)}.items():
        cells.append(Number(form.format(scale * cost[key]), cost[key]) if cost.get(key) is not None else "")
    return cells


def further_table(evaluation: Evaluation) -> Table:
    """All other scores that are single numbers, nested ones by a dotted name; a column for each system."""
    found = [_single(system.scores) for system in evaluation.systems]
    rows: list[list[Cell]] = []
    for name in _union(found):
        if name == evaluation.metric.key:
            continue
        values = [one.get(name) for one in found]
        share = all(value is None or abs(value) <= 1 for value in values) and evaluation.metric.percent
        share = share and not _IN_UNITS.search(name)
        rows.append([_in_words(name), *("" if value is None else _number(value, share) for value in values)])
    return Table("Other scores", ["score", *(system.name for system in evaluation.systems)], rows)


def _number(value: float, share: bool) -> Number:
    return score(value, True) if share else Number(f"{value:,.4g}", value)


def _single(scores: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Scores that are numbers by dotted name, without those of labels and slices, which have tables of their own."""
    found: dict[str, float] = {}
    for key, value in scores.items():
        if isinstance(value, bool) or key in _NOT_SHARES or key == "cost" or key.endswith("_by_seed"):
            continue
        if isinstance(value, (int, float)):
            found[prefix + key] = value
        elif isinstance(value, dict) and not key.startswith(("per_", "by_")) and key not in ("slices", "confusion"):
            found |= _single(value, f"{prefix}{key}.")
    return found


def label_tables(evaluation: Evaluation) -> list[Table]:
    """Precision, recall and F1 of each label: what stands under `per_...`."""
    keys = _union(system.scores for system in evaluation.systems)
    return [_by_name(evaluation, key, _LABELLED) for key in keys if key.startswith("per_")]


def slice_tables(evaluation: Evaluation) -> list[Table]:
    """Scores by what stands under `by_...` (seen in training or not, length), and those of the `slices`."""
    keys = _union(system.scores for system in evaluation.systems)
    found = [_by_name(evaluation, key, _SLICED) for key in keys if key.startswith("by_")]
    sliced = _union(system.scores.get("slices", {}) for system in evaluation.systems)
    return found + [_slices(evaluation, key) for key in sliced]


def _union(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys of all, each once: systems that different runs evaluated need not have the same."""
    return list(dict.fromkeys(key for one in found for key in one))


def _by_name(evaluation: Evaluation, key: str, titles: Mapping[str, str]) -> Table:
    """A row for each name with its support; the systems side by side, with as many of the scores as there are."""
    scored = [one for system in evaluation.systems for one in system.scores.get(key, {}).items()]
    names = list(dict.fromkeys(name for name, _ in scored))
    shown = [part for part in titles if any(part in one for _, one in scored)]
    heads = [titles[one] for _ in evaluation.systems for one in shown]
    over = [("", 2), *((system.name, len(shown)) for system in evaluation.systems)]
    rows: list[list[Cell]] = []
    for name in names:
        found = [system.scores.get(key, {}).get(name, {}) for system in evaluation.systems]
        support = next((one["support"] for one in found if "support" in one), None)
        cells = [score(one[part], True) if part in one else "" for one in found for part in shown]
        rows.append([name, "" if support is None else Number(f"{support:,}", support), *cells])
    return Table(_in_words(key), ["", "support", *heads], rows, over)


def _slices(evaluation: Evaluation, key: str) -> Table:
    metric = evaluation.metric
    sliced = [system.scores.get("slices", {}).get(key, {}) for system in evaluation.systems]
    rows: list[list[Cell]] = []
    for value in _union(sliced):
        one = next(there[value] for there in sliced if value in there)
        row: list[Cell] = [value + (" (few)" if one.get("few") else ""), Number(f"{one['count']:,}", one["count"])]
        for of_system in sliced:
            there = of_system.get(value, {})
            found = next((there[name] for name in there if name not in ("count", "interval", "few")), None)
            row.append("" if found is None else _with_interval(found, there.get("interval"), metric))
        rows.append(row)
    return Table(f"by {key}", [key, "texts", *(f"{system.name} [95 %]" for system in evaluation.systems)], rows)


def _in_words(key: str) -> str:
    return key.replace("_", " ").replace(".", ", ")


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix of gold and predicted labels: counts, and a shade from 0 to 10 by the share of the row."""

    system: str
    labels: list[str]
    rows: list[list[tuple[str, int, str]]]
    """Text, shade and the whole story of each cell."""
    left_out: int
    """Labels that are not shown: those that occur least."""


def confusions(evaluation: Evaluation, most: int = 30) -> list[Confusion]:
    """The matrices of an evaluation's systems."""
    return [
        _confusion(system.name, system.scores["confusion"], most)
        for system in evaluation.systems
        if system.scores.get("confusion", {}).get("labels")
    ]


def _confusion(system: str, found: Mapping[str, Any], most: int) -> Confusion:
    labels, counts = found["labels"], found["counts"]
    often = sorted(range(len(labels)), key=lambda place: -sum(counts[place]) - sum(row[place] for row in counts))
    kept = sorted(often[:most])
    rows = [list(_cells(labels, counts[place], place, kept)) for place in kept]
    return Confusion(system, [labels[place] for place in kept], rows, len(labels) - len(kept))


def _cells(
    labels: Sequence[str], row: Sequence[float], gold: int, kept: Iterable[int]
) -> Iterator[tuple[str, int, str]]:
    total = sum(row) or 1
    for place in kept:
        share = row[place] / total
        text = f"{row[place]:,.1f}".removesuffix(".0") if row[place] else ""
        told = f"gold {labels[gold]}, predicted {labels[place]}\n{text or 0} ({100 * share:.1f} % of the row)"
        yield text, round(_SHADES * share), told
