"""Format the scores of `summary` as lines of text, in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from domainbert.base.layout import format_interval, format_score
from domainbert.metrics.summary import Summary

_MAX_LABELS = 12  # of a printed confusion matrix

CALIBRATION_TITLES = {"ece": "ECE", "nll": "NLL", "brier": "Brier"}
"""Column titles of calibration scores, by name."""

_F1 = {"f1": ""}
_ALL_SCORES = {"precision": " precision", "recall": " recall", "f1": " F1"}

SystemScores = Mapping[str, dict[str, Any]]
"""Scores by system."""


def entity_lines(summary: Summary) -> list[str]:
    """Return lines with the headline, differences, scores by type, F1 by length and novelty, and kinds of errors."""
    further = {"precision": "precision", "recall": "recall", "macro_f1": "macro F1"}
    further |= {"lenient.f1": "lenient F1", "partial.f1": "partial F1"}
    systems = summary["systems"]
    lines = score_lines(summary, {"f1": "F1"}, further=further)
    lines += _scores_by_slice("by type", systems, "per_type", _ALL_SCORES)
    lines += _scores_by_slice("F1 by words", systems, "by_length", _F1)
    if all("by_novelty" in scores for scores in systems.values()):
        lines += _scores_by_slice("F1 by surface in training", systems, "by_novelty", _F1)
    errors = [scores["errors"] for scores in systems.values()]
    rows = [[kind, *(f"{counts[kind]:,.1f}" for counts in errors)] for kind in errors[0]]
    return [*lines, "", *_table(["entities, mean of seeds", *systems], rows)]


def raw_text_line(system: Mapping[str, Any]) -> str:
    """Return a line with the F1 on raw text, with the reason if it differs by more than 0.3 points from the F1 on given
    words."""
    raw = system["raw_text"]
    predicted, argmax, grouped = (format_score(raw[key], True) for key in ("f1", "argmax_f1", "pipeline_f1"))
    line = f"F1 on raw text {predicted}; with the best label of each word {argmax}; transformers.pipeline {grouped}"
    if abs(system["f1"] - raw["f1"]) <= 0.003:
        return line
    share = f"{100 * raw['words_split_differently']:.1f} % of the words of the file are split differently in raw text"
    return f"{line} ({share}; other words may have different pieces, because there is no space between them)"


def classification_lines(summary: Summary, headline: str = "f1", name: str = "macro F1") -> list[str]:
    """Return lines with the headline, differences, and scores by slice and by class."""
    further = {"precision": "macro precision", "recall": "macro recall"}
    further |= {"micro_f1": "micro F1", "weighted_f1": "weighted F1"}
    names = {headline: name} | {"f1": "macro F1", "accuracy": "accuracy"}
    lines = score_lines(summary, names, further=further) + slice_lines(summary, "f1")
    return lines + _scores_by_slice("by class", summary["systems"], "per_class", _ALL_SCORES)


def multi_label_lines(summary: Summary, headline: str = "f1", name: str = "micro F1") -> list[str]:
    """Return lines with the headline, differences, and scores by slice and by label."""
    further = {"precision": "precision", "recall": "recall", "weighted_f1": "weighted F1", "exact": "exact"}
    names = {headline: name} | {"f1": "micro F1", "macro_f1": "macro F1"}
    lines = score_lines(summary, names, further=further) + slice_lines(summary, "f1")
    return lines + _scores_by_slice("by label", summary["systems"], "per_label", _ALL_SCORES)


def tree_lines(summary: Summary) -> list[str]:
    """Return lines with the headline, differences, and scores by label and by length of the arc."""
    names = {"las": "LAS", "uas": "UAS"}
    names |= {"las_no_punctuation": "LAS, no punctuation", "uas_no_punctuation": "UAS, no punctuation"}
    lines = score_lines(summary, names, further={"exact": "exact trees"})
    lines += _scores_by_slice("by label", summary["systems"], "per_label", _ALL_SCORES)
    return lines + _scores_by_slice("F1 of heads by distance", summary["systems"], "by_length", _F1)


def per_label_lines(summary: Summary, names: Mapping[str, str]) -> list[str]:
    """Return lines with scores and intervals (`names`: titles by name, the headline first), and scores by label."""
    lines = score_lines(summary, names, further={"precision": "precision", "recall": "recall"})
    return lines + _scores_by_slice("by label", summary["systems"], "per_label", _ALL_SCORES)


def regression_lines(summary: Summary, headline: str = "pearson", name: str = "Pearson") -> list[str]:
    """Return lines with correlations, errors (in the unit of the numbers) and R2 with differences, and scores by
    slice."""
    names = {headline: name} | {"pearson": "Pearson", "spearman": "Spearman", "rmse": "RMSE", "mae": "MAE", "r2": "R2"}
    return score_lines(summary, names, percent=False) + slice_lines(summary, "pearson", percent=False)


def score_lines(
    summary: Summary, names: Mapping[str, str], percent: bool = True, further: Mapping[str, str] | None = None
) -> list[str]:
    """Return lines with scores, their intervals and differences, for any task.

    Args:
        summary: result of `summary.summarize`, with warnings.
        names: titles of scores with intervals, by name; the keys of the first score have no prefix.
        percent: whether scores are formatted in percent.
        further: titles of scores without intervals, by name; "a.b" is the nested score `b` of `a`.
    """
    prefixes = {name: f"{name}_" if number else "" for number, name in enumerate(names)}
    further = further or {}
    header = ["system", *(title for name in names.values() for title in (name, "95 % interval")), *further.values()]
    rows = []
    for system, scores in summary["systems"].items():
        row = [system]
        for name, prefix in prefixes.items():
            row += [format_score(scores[name], percent), format_interval(scores[f"{prefix}interval"], percent)]
        nested = (reduce(lambda value, key: value[key], name.split("."), scores) for name in further)
        rows.append([*row, *(format_score(score, percent) for score in nested), str(scores["seeds"])])
    lines = [*_table([*header, "seeds"], rows), *(f"warning: {warning}" for warning in summary["warnings"])]
    for name, prefix in prefixes.items():
        lines += _difference_lines(summary["paired"], prefix, names[name], percent)
    return lines


def slice_lines(summary: Summary, score: str, percent: bool = True) -> list[str]:
    """Return lines with the score of each slice, its interval and differences, by key; [] without slices."""
    systems, pairs = summary["systems"], summary["paired"]
    names = [*systems, *(f"{pair['a']} minus {pair['b']}" for pair in pairs)]
    lines: list[str] = []
    for key, slices in next(iter(systems.values())).get("slices", {}).items():
        rows = []
        for value, facts in slices.items():
            row = [f"{value} (few)" if facts.get("few") else value, f"{facts['count']:,}"]
            for part in (system["slices"][key][value] for system in systems.values()):
                row += [format_score(part[score], percent), format_interval(part["interval"], percent)]
            for part in (pair["slices"][key][value] for pair in pairs):
                row += [format_score(part["difference"], percent, "+"), format_interval(part["interval"], percent, "+")]
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
            bounds = scores["interval" if key == "ece" else f"{key}_interval"]
            row += [format_score(scores[key], False), format_interval(bounds, False)]
            row.append(format_score(scores["uncalibrated"][key], False))
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
    if len(labels) > _MAX_LABELS:
        return [f"{name}: metrics.json has the confusion matrix of the {len(labels):,} labels"]
    digits = 0 if all(float(count).is_integer() for row in counts for count in row) else 1
    rows = [[label, *(f"{count:,.{digits}f}" for count in row)] for label, row in zip(labels, counts, strict=True)]
    return _table([f"{name}: gold in rows, predicted", *labels], rows)


def cost_lines(systems: SystemScores, headline: str = "f1", higher: bool = True) -> list[str]:
    """Return lines with size and speed of each system, also relative to the first system.

    Students also get the share of the headline of the first system that they keep. Every system must have a `cost`; the
    cost of a student lists `teachers`. The share is omitted if lower is better.
    """
    first = next(iter(systems.values()))
    header = ["system", "parameters", "MB", "pieces/word", "words/s", "ms for 1 text", "for 32", "speed"]
    rows = [
        [
            name,
            f"{cost['parameters']:,}",
            f"{cost['folder_bytes'] / 1e6:,.1f}",
            f"{cost['pieces_per_word']:.3f}",
            f"{cost['words_per_second']:,.0f}",
            *(f"{1000 * cost[key]:,.1f}" for key in ("latency_1", "latency_32")),
            f"{cost['words_per_second'] / first['cost']['words_per_second']:.2f}x",
        ]
        for name, cost in ((name, scores["cost"]) for name, scores in systems.items())
    ]
    if higher and any(scores["cost"]["teachers"] for scores in systems.values()):
        header.append(f"{headline.replace('f1', 'F1')} kept")
        for row, scores in zip(rows, systems.values(), strict=True):
            has_share = scores["cost"]["teachers"] and first[headline] and scores[headline] is not None
            row.append(f"{100 * scores[headline] / first[headline]:.1f} %" if has_share else "")
    return _table(header, rows)


def _difference_lines(paired: Sequence[Mapping[str, Any]], prefix: str, metric: str, percent: bool) -> list[str]:
    rows = [
        [
            f"{pair['a']} minus {pair['b']}",
            format_score(pair[f"{prefix}difference"], percent, "+"),
            format_interval(pair[f"{prefix}interval"], percent, "+"),
        ]
        for pair in paired
    ]
    header = [f"paired difference, {metric}", "points" if percent else "by", "95 % interval"]
    return ["", *_table(header, rows)] if rows else []


def _scores_by_slice(title: str, systems: SystemScores, key: str, columns: Mapping[str, str]) -> list[str]:
    """Return lines with the scores of each slice; the gold support is the same for all systems."""
    slices = next(iter(systems.values()))[key]
    header = [title, "support", *(f"{name}{suffix}" for name in systems for suffix in columns.values())]
    rows = [
        [name, f"{slices[name]['support']:,}"]
        + [f"{100 * scores[key][name][column]:.2f}" for scores in systems.values() for column in columns]
        for name in slices
    ]
    return ["", *_table(header, rows)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column aligned left, all other columns right."""
    first, *others = (max(map(len, column)) for column in zip(header, *rows, strict=True))
    return [
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        for row in (header, *rows)
    ]
