"""Sets the numbers of `summary` in lines that a person reads; scores in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from domainbert.base.scores import shown_interval, shown_score
from domainbert.metrics.summary import Summary

_MOST_LABELS = 12  # of a confusion matrix that is printed

CALIBRATED = {"ece": "ECE", "nll": "NLL", "brier": "Brier"}
"""Scores of calibration, and their titles."""

_F1 = {"f1": ""}
_ALL_SCORES = {"precision": " precision", "recall": " recall", "f1": " F1"}

Scored = Mapping[str, dict[str, Any]]


def entity_lines(summary: Summary) -> list[str]:
    """Headline, differences, then scores by type, F1 by length and novelty and the kinds of errors, side by side."""
    further = {"precision": "precision", "recall": "recall", "macro_f1": "macro F1"}
    further |= {"lenient.f1": "lenient F1", "partial.f1": "partial F1"}
    systems = summary["systems"]
    lines = score_lines(summary, {"f1": "F1"}, further=further)
    lines += _slice_lines("by type", systems, "per_type", _ALL_SCORES)
    lines += _slice_lines("F1 by words", systems, "by_length", _F1)
    if all("by_novelty" in one for one in systems.values()):
        lines += _slice_lines("F1 by surface in training", systems, "by_novelty", _F1)
    errors = {name: one["errors"] for name, one in systems.items()}
    rows = [[kind, *(f"{one[kind]:,.1f}" for one in errors.values())] for kind in next(iter(errors.values()))]
    return [*lines, "", *_table(["entities, mean of seeds", *systems], rows)]


def raw_text_line(system: Mapping[str, Any]) -> str:
    """The F1 of raw text for one system, and the reason if it differs by more than 0.3 from the F1 of given words."""
    raw = system["raw_text"]
    predicted, argmax, grouped = (shown_score(raw[key], True) for key in ("f1", "argmax_f1", "pipeline_f1"))
    line = f"F1 on raw text {predicted}; with the best label of each word {argmax}; transformers.pipeline {grouped}"
    if abs(system["f1"] - raw["f1"]) <= 0.003:
        return line
    share = f"{100 * raw['words_split_differently']:.1f} % of the words of the file are split differently in raw text"
    return f"{line} ({share}; others may have other pieces there, without the spaces between words)"


def classification_lines(summary: Summary, headline: str = "f1", name: str = "macro F1") -> list[str]:
    """Headline, differences, then scores by slice and by class, systems side by side."""
    further = {"precision": "macro precision", "recall": "macro recall"}
    further |= {"micro_f1": "micro F1", "weighted_f1": "weighted F1"}
    names = {headline: name} | {"f1": "macro F1", "accuracy": "accuracy"}
    lines = score_lines(summary, names, further=further) + sliced_lines(summary, "f1")
    return lines + _slice_lines("by class", summary["systems"], "per_class", _ALL_SCORES)


def multi_label_lines(summary: Summary, headline: str = "f1", name: str = "micro F1") -> list[str]:
    """Headline, differences, then scores by slice and by label, systems side by side."""
    further = {"precision": "precision", "recall": "recall", "weighted_f1": "weighted F1", "exact": "exact"}
    names = {headline: name} | {"f1": "micro F1", "macro_f1": "macro F1"}
    lines = score_lines(summary, names, further=further) + sliced_lines(summary, "f1")
    return lines + _slice_lines("by label", summary["systems"], "per_label", _ALL_SCORES)


def tree_lines(summary: Summary) -> list[str]:
    """Headline, differences, then scores by label and by length of the arc, systems side by side."""
    names = {"las": "LAS", "uas": "UAS"}
    names |= {"las_no_punctuation": "LAS, no punctuation", "uas_no_punctuation": "UAS, no punctuation"}
    lines = score_lines(summary, names, further={"exact": "exact trees"})
    lines += _slice_lines("by label", summary["systems"], "per_label", _ALL_SCORES)
    return lines + _slice_lines("F1 of heads by distance", summary["systems"], "by_length", _F1)


def per_label_lines(summary: Summary, names: Mapping[str, str]) -> list[str]:
    """Scores that have intervals, by name and title, the first being the headline; then scores by label."""
    lines = score_lines(summary, names, further={"precision": "precision", "recall": "recall"})
    return lines + _slice_lines("by label", summary["systems"], "per_label", _ALL_SCORES)


def regression_lines(summary: Summary, headline: str = "pearson", name: str = "Pearson") -> list[str]:
    """Correlations, errors in the unit of the numbers, and R2, with intervals and differences; then scores by slice."""
    names = {headline: name} | {"pearson": "Pearson", "spearman": "Spearman", "rmse": "RMSE", "mae": "MAE", "r2": "R2"}
    return score_lines(summary, names, percent=False) + sliced_lines(summary, "pearson", percent=False)


def score_lines(
    summary: Summary, names: Mapping[str, str], percent: bool = True, further: Mapping[str, str] | None = None
) -> list[str]:
    """Scores of any task with their intervals, and the differences.

    Args:
        summary: as `summary.summarize` gives it, with warnings.
        names: the scores that have intervals, and their titles; the interval of the first has no name in front.
        percent: whether they are shares, shown in percent.
        further: scores without intervals, and their titles; a dot leads into nested ones.
    """
    prefixes = {name: f"{name}_" if number else "" for number, name in enumerate(names)}
    further = further or {}
    header = ["system", *(title for name in names.values() for title in (name, "95 % interval")), *further.values()]
    rows = []
    for system, one in summary["systems"].items():
        row = [system]
        for name, prefix in prefixes.items():
            row += [shown_score(one[name], percent), shown_interval(one[f"{prefix}interval"], percent)]
        nested = (reduce(lambda found, part: found[part], name.split("."), one) for name in further)
        rows.append([*row, *(shown_score(score, percent) for score in nested), str(one["seeds"])])
    lines = [*_table([*header, "seeds"], rows), *(f"warning: {warning}" for warning in summary["warnings"])]
    for name, prefix in prefixes.items():
        lines += _difference_lines(summary["paired"], prefix, names[name], percent)
    return lines


def sliced_lines(summary: Summary, score: str, percent: bool = True) -> list[str]:
    """The score of each slice with its interval, by key, systems side by side, and the differences of the first.

    Nothing where there are no slices.
    """
    systems, pairs = summary["systems"], summary["paired"]
    names = [*systems, *(f"{pair['a']} minus {pair['b']}" for pair in pairs)]
    lines: list[str] = []
    for key, slices in next(iter(systems.values())).get("slices", {}).items():
        rows = []
        for value, one in slices.items():
            row = [f"{value} (few)" if one.get("few") else value, f"{one['count']:,}"]
            for found in (system["slices"][key][value] for system in systems.values()):
                row += [shown_score(found[score], percent), shown_interval(found["interval"], percent)]
            for found in (pair["slices"][key][value] for pair in pairs):
                row += [shown_score(found["difference"], percent, "+"), shown_interval(found["interval"], percent, "+")]
            rows.append(row)
        header = [f"by {key}", "count", *(title for name in names for title in (name, "95 % interval"))]
        lines += ["", *_table(header, rows)]
    return lines


def calibration_lines(summary: Summary) -> list[str]:
    """Calibration of each system, with its temperature and without."""
    systems = {name: one["calibration"] for name, one in summary["systems"].items()}
    header = ["calibration", *(title for name in CALIBRATED.values() for title in (name, "95 % interval", "without"))]
    rows = []
    for name, one in systems.items():
        row = [name]
        for key in CALIBRATED:
            bounds = one["interval" if key == "ece" else f"{key}_interval"]
            row += [
                shown_score(one[key], False),
                shown_interval(bounds, False),
                shown_score(one["uncalibrated"][key], False),
            ]
        rows.append([*row, f"{one['temperature']:.3f}"])
    return ["", *_table([*header, "temperature"], rows)]


def confusion_lines(systems: Scored) -> list[str]:
    """Labels of gold in rows, predicted ones in columns, the mean over the seeds, of each system that has them."""
    lines = []
    for name, one in systems.items():
        if "confusion" in one:
            lines += ["", *_confusion_table(name, **one["confusion"])]
    return lines


def _confusion_table(name: str, labels: Sequence[str], counts: Sequence[Sequence[float]]) -> list[str]:
    if len(labels) > _MOST_LABELS:
        return [f"{name}: metrics.json has the confusion matrix of the {len(labels):,} labels"]
    whole = all(float(count).is_integer() for row in counts for count in row)
    rows = [
        [label, *(f"{count:,.0f}" if whole else f"{count:,.1f}" for count in row)]
        for label, row in zip(labels, counts, strict=True)
    ]
    return _table([f"{name}: gold in rows, predicted", *labels], rows)


def cost_lines(systems: Scored, headline: str = "f1", higher: bool = True) -> list[str]:
    """Size and speed, the latter also as a multiple of the first system's, and what students keep of its headline.

    Every system has its `cost`; a student's names its `teachers`. No share is told where less is better.
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
        for name, one in systems.items()
        for cost in [one["cost"]]
    ]
    if higher and any(one["cost"]["teachers"] for one in systems.values()):
        header.append(f"{headline.replace('f1', 'F1')} kept")
        for row, one in zip(rows, systems.values(), strict=True):
            kept = one["cost"]["teachers"] and first[headline] and one[headline] is not None
            row.append(f"{100 * one[headline] / first[headline]:.1f} %" if kept else "")
    return _table(header, rows)


def _difference_lines(paired: Sequence[Mapping[str, Any]], prefix: str, metric: str, percent: bool) -> list[str]:
    rows = [
        [
            f"{pair['a']} minus {pair['b']}",
            shown_score(pair[f"{prefix}difference"], percent, "+"),
            shown_interval(pair[f"{prefix}interval"], percent, "+"),
        ]
        for pair in paired
    ]
    header = [f"paired difference, {metric}", "points" if percent else "by", "95 % interval"]
    return ["", *_table(header, rows)] if rows else []


def _slice_lines(title: str, systems: Scored, key: str, columns: Mapping[str, str]) -> list[str]:
    """Scores of each slice for each system; the support is that of gold and the same for all."""
    slices = next(iter(systems.values()))[key]
    header = [title, "support", *(f"{name}{shown}" for name in systems for shown in columns.values())]
    rows = [
        [name, f"{slices[name]['support']:,}"]
        + [f"{100 * one[key][name][column]:.2f}" for one in systems.values() for column in columns]
        for name in slices
    ]
    return ["", *_table(header, rows)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (header, *rows)
    ]
