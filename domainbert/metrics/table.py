"""Format the scores of `summary` as lines of text, in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any, Literal

from domainbert.base.layout import format_interval, format_score
from domainbert.metrics.summary import Summary

_MAX_LABELS = 12  # of a printed confusion matrix

CALIBRATION_TITLES = {"ece": "ECE", "nll": "NLL", "brier": "Brier"}
"""Column titles of calibration scores, by name."""

_ALL_SCORES = {"precision": " precision", "recall": " recall", "f1": " F1"}  # suffix of a column title, by name

SystemScores = Mapping[str, dict[str, Any]]
"""Scores by system."""


@dataclass(frozen=True)
class Breakdown:
    """A table with precision, recall and F1 of groups, such as labels, or only with their F1."""

    title: str
    """Title of the first column, such as "by label"."""
    key: str
    """Key of the groups in the scores of a system, such as `per_label`. Without this key there is no table."""
    only_f1: bool = False

    def lines(self, systems: SystemScores) -> list[str]:
        """Return the lines of the table; the gold support is the same for all systems."""
        groups = next(iter(systems.values())).get(self.key)
        if groups is None:
            return []
        columns = {"f1": ""} if self.only_f1 else _ALL_SCORES
        header = [self.title, "support", *(f"{name}{suffix}" for name in systems for suffix in columns.values())]
        rows = [
            [group, f"{groups[group]['support']:,}"]
            + [f"{100 * scores[self.key][group][column]:.2f}" for scores in systems.values() for column in columns]
            for group in groups
        ]
        return ["", *_table(header, rows)]


def error_lines(systems: SystemScores) -> list[str]:
    """Return lines with the number of entities by kind of error, mean of seeds."""
    errors = [scores["errors"] for scores in systems.values()]
    rows = [[kind, *(f"{counts[kind]:,.1f}" for counts in errors)] for kind in errors[0]]
    return ["", *_table(["entities, mean of seeds", *systems], rows)]


def raw_text_line(system: Mapping[str, Any]) -> str:
    """Return a line with the F1 on raw text, as it is printed.

    It adds the possible reasons if this F1 differs by more than 0.3 points from the F1 on the words of the file.
    """
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
    columns = [title for name in names.values() for title in (name, "95 % interval")]
    header = ["system", *columns, *further.values(), "seeds"]
    rows = []
    for system, scores in summary["systems"].items():
        row = [system]
        for name, prefix in prefixes.items():
            row += _with_interval(scores[name], scores[f"{prefix}interval"], percent)
        row += [format_score(reduce(getitem, name.split("."), scores), percent) for name in further]
        rows.append([*row, str(scores["seeds"])])
    lines = [*_table(header, rows), *(f"warning: {warning}" for warning in summary["warnings"])]
    for name, prefix in prefixes.items():
        lines += _difference_lines(summary["paired"], prefix, names[name], percent)
    return lines


def slice_lines(summary: Summary, score: str, percent: bool = True) -> list[str]:
    """Return lines with the score of each slice, its interval and differences, by key; [] without slices."""
    systems, pairs = summary["systems"], summary["paired"]
    names = [*systems, *(f"{pair['a']} minus {pair['b']}" for pair in pairs)]
    lines: list[str] = []
    for key, first_slices in next(iter(systems.values())).get("slices", {}).items():
        rows = []
        for value, facts in first_slices.items():
            row = [f"{value} (few)" if facts.get("few") else value, f"{facts['count']:,}"]
            for system in systems.values():
                scores = system["slices"][key][value]
                row += _with_interval(scores[score], scores["interval"], percent)
            for pair in pairs:
                change = pair["slices"][key][value]
                row += _with_interval(change["difference"], change["interval"], percent, "+")
            rows.append(row)
        header = [f"by {key}", "count", *(title for name in names for title in (name, "95 % interval"))]
        lines += ["", *_table(header, rows)]
    return lines


def calibration_lines(summary: Summary) -> list[str]:
    """Return lines with the calibration of each system, with and without its temperature."""
    header = [
        "calibration",
        *(title for name in CALIBRATION_TITLES.values() for title in (name, "95 % interval", "without")),
    ]
    rows = []
    for name, system in summary["systems"].items():
        scores, row = system["calibration"], [name]
        for key in CALIBRATION_TITLES:
            bounds = scores["interval" if key == "ece" else f"{key}_interval"]  # ECE is the headline, without prefix
            row += _with_interval(scores[key], bounds, percent=False)
            row.append(format_score(scores["uncalibrated"][key], percent=False))
        rows.append([*row, f"{scores['temperature']:.3f}"])
    return ["", *_table([*header, "temperature"], rows)]


def confusion_lines(systems: SystemScores) -> list[str]:
    """Return lines with the confusion matrices (rows: gold, columns: predicted, mean of seeds) of the systems that have
    one."""
    lines = []
    for name, scores in systems.items():
        if "confusion" in scores:
            lines += ["", *_confusion_table(name, **scores["confusion"])]
    return lines


def _confusion_table(name: str, labels: Sequence[str], counts: Sequence[Sequence[float]]) -> list[str]:
    """Return the lines of a confusion matrix; with many labels, a reference to `metrics.json` instead."""
    if len(labels) > _MAX_LABELS:
        return [f"{name}: metrics.json has the confusion matrix of the {len(labels):,} labels"]
    digits = 0 if all(float(count).is_integer() for row in counts for count in row) else 1
    rows = [[label, *(f"{count:,.{digits}f}" for count in row)] for label, row in zip(labels, counts, strict=True)]
    return _table([f"{name}: gold in rows, predicted", *labels], rows)


def cost_lines(systems: SystemScores, headline: str = "f1", higher: bool = True) -> list[str]:
    """Return lines with size and speed of each system: "speed" relative to the first system, "spread" of the rounds.

    If there are students (systems whose `cost` lists `teachers`), a further column has their headline as a share of the
    headline of the first system. The share is omitted if lower values are better.
    """
    first = next(iter(systems.values()))
    header = ["system", "parameters", "MB", "pieces/word", "words/s", "ms for 1 text", "for 32", "spread", "speed"]
    shows_share = higher and any(scores["cost"]["teachers"] for scores in systems.values())
    if shows_share:
        header.append(f"{headline.replace('f1', 'F1')} kept")
    rows = []
    for name, scores in systems.items():
        cost = scores["cost"]
        row = [
            name,
            f"{cost['parameters']:,}",
            f"{cost['folder_bytes'] / 1e6:,.1f}",
            f"{cost['pieces_per_word']:.3f}",
            f"{cost['words_per_second']:,.0f}",
            *(f"{1000 * cost[key]:,.1f}" for key in ("latency_1", "latency_32")),
            f"±{cost['spread']:.0%}",
            f"{cost['words_per_second'] / first['cost']['words_per_second']:.2f}x",
        ]
        if shows_share:
            # only students have teachers; the headline of the first system may be None or 0
            has_share = cost["teachers"] and first[headline] and scores[headline] is not None
            row.append(f"{100 * scores[headline] / first[headline]:.1f} %" if has_share else "")
        rows.append(row)
    return _table(header, rows)


def _difference_lines(paired: Sequence[Mapping[str, Any]], prefix: str, metric: str, percent: bool) -> list[str]:
    if not paired:
        return []
    header = [f"paired difference, {metric}", "points" if percent else "by", "95 % interval"]
    rows = [
        [
            f"{pair['a']} minus {pair['b']}",
            *_with_interval(pair[f"{prefix}difference"], pair[f"{prefix}interval"], percent, "+"),
        ]
        for pair in paired
    ]
    return ["", *_table(header, rows)]


def _with_interval(
    score: float | None, bounds: Sequence[float] | None, percent: bool, sign: Literal["", "+"] = ""
) -> list[str]:
    """Return the two cells of a score and its confidence interval."""
    return [format_score(score, percent, sign), format_interval(bounds, percent, sign)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column aligned left, all other columns right."""
    first, *others = (max(map(len, column)) for column in zip(header, *rows, strict=True))
    return [
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        for row in (header, *rows)
    ]
