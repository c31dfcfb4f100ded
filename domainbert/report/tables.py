"""Tables of scores for the templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from domainbert.base.table import Cell, Table, number_cell, score_cell
from domainbert.metrics.table import LABEL_SCORES, Breakdown, cost_cells, cost_heads, distinct_keys
from domainbert.metrics.table import slice_tables as tables_of_slices
from domainbert.report.evaluations import Evaluation

_SHADES = 10  # shades of a cell: `h0` to `h10` in confusion.css
_COSTS = ("latency_1", "words_per_second", "parameters", "pieces_per_word", "spread")
_SLICE_SCORES = {"f1": "F1", "exact": "exact match", "right": "right as a whole"}
_NOT_FURTHER = re.compile(r".*_by_seed|cost|seeds|repaired_tags|support")
_IN_OTHER_TABLES = re.compile(r"(per|by)_.*|slices|confusion")
_NOT_PERCENT = re.compile(r"^errors\.|\b(temperature|nll|brier)$|threshold$")  # never shown in %


def systems_table(evaluation: Evaluation) -> Table:
    """Return a table of the systems: score with interval, difference to the first system, seeds, costs."""
    metric = evaluation.metric
    # differences to the first system, by the name of the other system
    pairs = {pair.b: pair for pair in evaluation.pairs if pair.a == evaluation.systems[0].name}
    heads = ["system", metric.name, *(["first minus this"] if pairs else []), "seeds", *cost_heads(_COSTS)]
    rows: list[list[Cell]] = []
    for system in evaluation.systems:
        scores = system.scores
        row: list[Cell] = [system.name, score_cell(scores[metric.key], metric.percent, scores.get("interval"))]
        if pair := pairs.get(system.name):
            row.append(score_cell(pair.difference, metric.percent, pair.interval, sign="+"))
        elif pairs:
            row.append("")
        rows.append([*row, number_cell(scores.get("seeds")), *cost_cells(scores.get("cost") or {}, _COSTS)])
    return Table(heads, rows, _caption(evaluation))


def _caption(evaluation: Evaluation) -> str:
    facts = evaluation.facts
    parts = [str(facts["test"])] if facts.get("test") else []
    if facts.get("gold") is not None:
        parts.append(f"{facts['gold']:,} gold labels")
    if drawn := facts.get("bootstrap"):
        units = f"{drawn['units']:,} {drawn['unit']}"
        seeds = " and of seeds" if any((system.scores.get("seeds") or 1) > 1 for system in evaluation.systems) else ""
        parts.append(f"intervals from {drawn['resamples']:,} resamples of {units}{seeds}")
    return "; ".join(parts)


def further_table(evaluation: Evaluation) -> Table:
    """Return a table of all other numeric scores, without labels and slices: a row per score, a column per system."""
    scores = [_flat_scores(system.scores) for system in evaluation.systems]
    rows: list[list[Cell]] = []
    for name in distinct_keys(scores):
        if name == evaluation.metric.key:
            continue
        values = [by_name.get(name) for by_name in scores]
        are_shares = all(value is None or abs(value) <= 1 for value in values)
        percent = are_shares and evaluation.metric.percent and not _NOT_PERCENT.search(name)
        row: list[Cell] = [_readable_name(name)]
        for value in values:
            row.append(number_cell(value, "{:.2f}", 100) if percent else number_cell(value, "{:,.4g}"))
        rows.append(row)
    return Table(["score", *(system.name for system in evaluation.systems)], rows, "Other scores")


def _flat_scores(scores: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
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
    return _breakdowns(evaluation, "per_", LABEL_SCORES)


def slice_tables(evaluation: Evaluation) -> list[Table]:
    """Return tables of the scores of slices (subgroups of the test set): the scores under `by_...` and `slices`."""
    slices = tables_of_slices(_scores(evaluation), evaluation.metric.percent)
    return _breakdowns(evaluation, "by_", _SLICE_SCORES) + slices


def _breakdowns(evaluation: Evaluation, prefix: str, titles: Mapping[str, str]) -> list[Table]:
    scores = _scores(evaluation)
    keys = [key for key in distinct_keys(scores.values()) if key.startswith(prefix)]
    return [Breakdown(_readable_name(key), key, titles).table(scores) for key in keys]


def _scores(evaluation: Evaluation) -> dict[str, dict[str, Any]]:
    return {system.name: system.scores for system in evaluation.systems}


def _readable_name(key: str) -> str:
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
    """Yield text, shade (0 to 10, the share of the row) and tooltip of the cells of gold label `gold` in `columns`."""
    total = sum(row) or 1  # 1 for a row of zeros
    for column in columns:
        share = row[column] / total
        text = f"{row[column]:,.1f}".removesuffix(".0") if row[column] else ""
        tip = f"gold {labels[gold]}, predicted {labels[column]}\n{text or 0} ({100 * share:.1f} % of the row)"
        yield text, round(_SHADES * share), tip
