"""Tables of the scores of `summary`, for the terminal and for the report. Does not import NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

from domainbert.base.layout import format_score
from domainbert.base.table import Cell, Table, number_cell, score_cell

if TYPE_CHECKING:
    from domainbert.metrics.summary import Summary

_MAX_LABELS = 12  # of a printed confusion matrix

CALIBRATION_TITLES = {"ece": "ECE", "nll": "NLL", "brier": "Brier"}
"""Column titles of calibration scores, by name."""

LABEL_SCORES = {"precision": "precision", "recall": "recall", "f1": "F1"}
"""Column titles of the scores of a label, by name."""

_COSTS: Mapping[str, tuple[str, str, float]] = {  # title, template and factor of each cost, by name
    "parameters": ("parameters", "{:,}", 1),
    "folder_bytes": ("MB", "{:,.1f}", 1e-6),
    "pieces_per_word": ("pieces/word", "{:.3f}", 1),
    "words_per_second": ("words/s", "{:,.0f}", 1),
    "latency_1": ("ms for 1 text", "{:,.1f}", 1e3),
    "latency_32": ("for 32", "{:,.1f}", 1e3),
    "spread": ("spread", "±{:.0%}", 1),
}

SystemScores = Mapping[str, Mapping[str, Any]]
"""Scores by system."""


@dataclass(frozen=True)
class Breakdown:
    """A table with scores of groups, such as labels.

    Attributes:
        title: title of the first column, such as "by label".
        key: key of the groups in the scores of a system, such as `per_label`. Without this key the table has no rows.
        scores: column titles of the scores, by name; a score that no system has gets no column.
    """

    title: str
    key: str
    scores: Mapping[str, str] = field(default_factory=lambda: LABEL_SCORES)

    def table(self, systems: SystemScores) -> Table:
        """Return the table: a row for each group, with its gold support, which is the same for all systems."""
        by_system = [scores.get(self.key, {}) for scores in systems.values()]  # of each system: scores by group
        present = {name for groups in by_system for scores in groups.values() for name in scores}
        names = [name for name in self.scores if name in present]
        rows: list[list[Cell]] = []
        for group in distinct_keys(by_system):
            group_scores = [groups.get(group, {}) for groups in by_system]
            support = next((scores["support"] for scores in group_scores if "support" in scores), None)
            cells = [score_cell(scores[name]) if name in scores else "" for scores in group_scores for name in names]
            rows.append([group, number_cell(support), *cells])
        heads = [self.title, "support", *([self.scores[name] for name in names] * len(systems))]
        groups = [("", 2), *((system, len(names)) for system in systems)]
        return Table(heads, rows, self.title, groups)


def distinct_keys(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return all distinct keys: systems of different runs may have different scores."""
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


def error_lines(systems: SystemScores) -> list[str]:
    """Return lines with the number of entities by kind of error, mean of seeds."""
    errors = [scores["errors"] for scores in systems.values()]
    rows = [[kind, *(number_cell(counts[kind], "{:,.1f}") for counts in errors)] for kind in errors[0]]
    return ["", *Table(["entities, mean of seeds", *systems], rows).lines()]


def raw_text_line(system: Mapping[str, Any]) -> str:
    """Return a line with the F1 on raw text, as it is printed. It adds the possible reasons if this F1 differs by more
    than 0.3 points from the F1 on the words of the file."""
    raw = system["raw_text"]
    predicted, argmax, grouped = (format_score(raw[key], percent=True) for key in ("f1", "argmax_f1", "pipeline_f1"))
    line = f"F1 on printed text {predicted}; with the best label of each word {argmax}; transformers.pipeline {grouped}"
    if abs(system["f1"] - raw["f1"]) <= 0.003:
        return line
    share = f"{100 * raw['words_split_differently']:.1f} % of the words of the file are split differently in raw text"
    return f"{line} ({share}; words without a space between them in raw text may also have other pieces)"


def score_lines(
    summary: Summary, names: Mapping[str, str], percent: bool = True, further: Mapping[str, str] | None = None
) -> list[str]:
    """Return lines with scores, their intervals and differences, for any task.

    Args:
        summary: result of `summary.summarize`, with warnings.
        names: titles of scores with intervals, by name. The interval of the first score has the key `interval`, that of
            another score, such as `accuracy`, the key `accuracy_interval`; and so have differences.
        percent: whether scores are formatted in percent.
        further: titles of scores without intervals, by name; "a.b" is the nested score `b` of `a`.
    """
    prefixes = {name: f"{name}_" if number else "" for number, name in enumerate(names)}
    further = further or {}
    rows: list[list[Cell]] = []
    for system, scores in summary["systems"].items():
        row: list[Cell] = [system]
        row += [score_cell(scores[name], percent, scores[f"{prefix}interval"]) for name, prefix in prefixes.items()]
        row += [score_cell(reduce(getitem, name.split("."), scores), percent) for name in further]  # scores["a"]["b"]
        rows.append([*row, number_cell(scores["seeds"])])
    lines = Table(["system", *names.values(), *further.values(), "seeds"], rows).lines()
    lines += [f"warning: {warning}" for warning in summary["warnings"]]
    if not summary["paired"]:
        return lines
    for name, prefix in prefixes.items():
        heads = [f"paired difference, {names[name]}", "points" if percent else "by"]
        rows = [
            [pair_name(pair), score_cell(pair[f"{prefix}difference"], percent, pair[f"{prefix}interval"], "+")]
            for pair in summary["paired"]
        ]
        lines += ["", *Table(heads, rows).lines()]
    return lines


def pair_name(pair: Mapping[str, Any]) -> str:
    """Return the name of the difference of two systems."""
    return f"{pair['a']} minus {pair['b']}"


def slice_tables(systems: SystemScores, percent: bool, paired: Sequence[Mapping[str, Any]] = ()) -> list[Table]:
    """Return for each slicing key a table with a row for each value of the key: the number of items, the score of each
    system with its interval, and the differences of `paired` systems."""
    keys = distinct_keys(scores.get("slices", {}) for scores in systems.values())
    return [_slice_table(key, systems, percent, paired) for key in keys]


def _slice_table(key: str, systems: SystemScores, percent: bool, paired: Sequence[Mapping[str, Any]]) -> Table:
    by_system = [scores.get("slices", {}).get(key, {}) for scores in systems.values()]
    differences = [pair["slices"][key] for pair in paired]
    rows: list[list[Cell]] = []
    for value in distinct_keys(by_system):
        first = next(slices[value] for slices in by_system if value in slices)
        row: list[Cell] = [f"{value} (few)" if first.get("few") else value, number_cell(first["count"])]
        for slices in by_system:
            entry = slices.get(value, {})
            # the only other key is the name of the score
            name = next((key for key in entry if key not in ("count", "interval", "few")), None)
            row.append("" if name is None else score_cell(entry[name], percent, entry.get("interval")))
        for slices in differences:
            row.append(score_cell(slices[value]["difference"], percent, slices[value]["interval"], "+"))
        rows.append(row)
    return Table([f"by {key}", "count", *systems, *map(pair_name, paired)], rows, f"by {key}")


def calibration_lines(summary: Summary) -> list[str]:
    """Return lines with the calibration of each system, with and without its temperature."""
    heads = ["calibration", *(head for title in CALIBRATION_TITLES.values() for head in (title, "without"))]
    rows: list[list[Cell]] = []
    for name, system in summary["systems"].items():
        scores = system["calibration"]
        row: list[Cell] = [name]
        for key in CALIBRATION_TITLES:
            interval = scores["interval" if key == "ece" else f"{key}_interval"]  # ECE is the headline, without prefix
            row += [score_cell(scores[key], False, interval), score_cell(scores["uncalibrated"][key], False)]
        rows.append([*row, number_cell(scores["temperature"], "{:.3f}")])
    return ["", *Table([*heads, "temperature"], rows).lines()]


def confusion_lines(systems: SystemScores) -> list[str]:
    """Return lines with the confusion matrices (rows: gold, columns: predicted, mean of seeds) of the systems that have
    one."""
    lines = []
    for name, scores in systems.items():
        if "confusion" in scores:
            lines += ["", *_confusion_table(name, **scores["confusion"])]
    return lines


def _confusion_table(name: str, labels: Sequence[str], counts: Sequence[Sequence[float]]) -> list[str]:
    if len(labels) > _MAX_LABELS:
        return [f"{name}: metrics.json has the confusion matrix of the {len(labels):,} labels"]
    template = "{:,.0f}" if all(float(count).is_integer() for row in counts for count in row) else "{:,.1f}"
    rows = [
        [label, *(number_cell(count, template) for count in row)] for label, row in zip(labels, counts, strict=True)
    ]
    return Table([f"{name}: gold in rows, predicted", *labels], rows).lines()


def cost_heads(names: Iterable[str]) -> list[str]:
    """Return the column titles of costs."""
    return [_COSTS[name][0] for name in names]


def cost_cells(cost: Mapping[str, Any], names: Iterable[str]) -> list[Cell]:
    """Return the cells of costs; unknown costs are empty."""
    cells = []
    for name in names:
        _, template, factor = _COSTS[name]
        cells.append(number_cell(cost.get(name), template, factor))
    return cells


def cost_lines(systems: SystemScores, headline: str = "f1", higher: bool = True) -> list[str]:
    """Return lines with size and speed of each system: "speed" relative to the first system, "spread" of the rounds.

    If there are students (systems whose `cost` lists `teachers`), a further column has their headline as a share of the
    headline of the first system. The share is omitted if lower values are better.
    """
    first = next(iter(systems.values()))
    heads = ["system", *cost_heads(_COSTS), "speed"]
    shows_share = higher and any(scores["cost"]["teachers"] for scores in systems.values())
    if shows_share:
        heads.append(f"{headline.replace('f1', 'F1')} kept")
    rows: list[list[Cell]] = []
    for name, scores in systems.items():
        cost = scores["cost"]
        speed = cost["words_per_second"] / first["cost"]["words_per_second"]
        row = [name, *cost_cells(cost, _COSTS), number_cell(speed, "{:.2f}x")]
        if shows_share:
            # only students have teachers; the headline of the first system may be None or 0
            has_share = cost["teachers"] and first[headline] and scores[headline] is not None
            share = scores[headline] / first[headline] if has_share else None
            row.append(number_cell(share, "{:.1f} %", 100))
        rows.append(row)
    return Table(heads, rows).lines()
