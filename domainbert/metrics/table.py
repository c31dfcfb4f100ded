"""Sets the numbers of `summary` in lines that a person reads; scores in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from domainbert.metrics.summary import Summary

_MOST_CLASSES = 12  # of a confusion matrix that is printed


def entity_lines(summary: Summary) -> list[str]:
    """Headline, differences, then scores by type, F1 by length and novelty and the kinds of errors, side by side."""
    systems = summary["systems"]
    header = ["system", "F1", "95 % interval", "precision", "recall", "macro F1", "lenient F1", "partial F1", "seeds"]
    rows = [
        [
            name,
            _percent(one["f1"]),
            _interval(one["interval"]),
            *(_percent(one[key]) for key in ("precision", "recall", "macro_f1")),
            *(_percent(one[key]["f1"]) for key in ("lenient", "partial")),
            str(one["seeds"]),
        ]
        for name, one in systems.items()
    ]
    lines = [*_table(header, rows), *_warning_lines(summary), *_difference_lines(summary, "", "F1")]
    lines += ["", *_all_scores("by type", systems, "per_type")]
    lines += ["", *_side_by_side("F1 by words", systems, "by_length")]
    if all("by_novelty" in one for one in systems.values()):
        lines += ["", *_side_by_side("F1 by surface in training", systems, "by_novelty")]
    return [*lines, "", *_error_lines(systems)]


def classification_lines(summary: Summary) -> list[str]:
    """Headline, differences, scores by class, systems side by side, and which class is taken for which."""
    systems = summary["systems"]
    header = [
        "system",
        "macro F1",
        "95 % interval",
        "accuracy",
        "95 % interval",
        "macro precision",
        "macro recall",
        "micro F1",
        "weighted F1",
        "seeds",
    ]
    rows = [
        [
            name,
            _percent(one["f1"]),
            _interval(one["interval"]),
            _percent(one["accuracy"]),
            _interval(one["accuracy_interval"]),
            *(_percent(one[key]) for key in ("precision", "recall", "micro_f1", "weighted_f1")),
            str(one["seeds"]),
        ]
        for name, one in systems.items()
    ]
    lines = [*_table(header, rows), *_warning_lines(summary), *_difference_lines(summary, "", "macro F1")]
    lines += _difference_lines(summary, "accuracy_", "accuracy")
    lines += ["", *_all_scores("by class", systems, "per_class")]
    return lines + [line for name, one in systems.items() for line in ["", *_confusion_lines(name, one["confusion"])]]


def score_lines(summary: Summary, names: Mapping[str, str], percent: bool, further: Sequence[str] = ()) -> list[str]:
    """Scores of any task with their intervals, and the differences.

    Args:
        summary: as `summary.summarize` gives it, with warnings.
        names: the scores that have intervals, and their titles; the interval of the first has no name in front.
        percent: whether they are shares, shown in percent.
        further: scores without intervals.
    """
    prefixes, scale = {name: f"{name}_" if number else "" for number, name in enumerate(names)}, 100 if percent else 1
    header = ["system", *(title for name in names.values() for title in (name, "95 % interval"))]
    header += [*(name.replace("_", " ").replace("f1", "F1") for name in further), "seeds"]
    rows = [
        [
            system,
            *(
                cell
                for name, prefix in prefixes.items()
                for cell in (f"{scale * one[name]:.2f}", _interval(one[f"{prefix}interval"], scale=scale))
            ),
            *(f"{scale * one[name]:.2f}" for name in further),
            str(one["seeds"]),
        ]
        for system, one in summary["systems"].items()
    ]
    lines = [*_table(header, rows), *_warning_lines(summary)]
    return lines + [
        line for name, prefix in prefixes.items() for line in _difference_lines(summary, prefix, names[name], scale)
    ]


def multi_label_lines(summary: Summary) -> list[str]:
    """Headline, differences, then scores by label, systems side by side."""
    names = {"f1": "micro F1", "macro_f1": "macro F1"}
    further = ["precision", "recall", "weighted_f1", "exact"]
    return [*score_lines(summary, names, True, further), "", *_all_scores("by label", summary["systems"], "per_label")]


def cost_lines(systems: Mapping[str, dict[str, Any]], headline: str = "f1", higher: bool = True) -> list[str]:
    """Size and speed, the latter also as a multiple of the first system's, and what students keep of its score.

    Every system has its `cost`; a student's names its `teachers`.

    Args:
        systems: scores and cost of each.
        headline: the score of which a share is kept.
        higher: whether more of it is better; if not, no share is told.
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
            kept = one[headline] / first[headline] if one["cost"]["teachers"] and first[headline] else None
            row.append("" if kept is None else f"{100 * kept:.1f} %")
    return _table(header, rows)


def _warning_lines(summary: Summary) -> list[str]:
    return [f"warning: {warning}" for warning in summary["warnings"]]


def _difference_lines(summary: Summary, prefix: str, metric: str, scale: float = 100) -> list[str]:
    if not summary["paired"]:
        return []
    rows = [
        [
            f"{pair['a']} minus {pair['b']}",
            f"{scale * pair[f'{prefix}difference']:+.2f}",
            _interval(pair[f"{prefix}interval"], sign="+", scale=scale),
        ]
        for pair in summary["paired"]
    ]
    return ["", *_table([f"paired difference, {metric}", "points" if scale == 100 else "by", "95 % interval"], rows)]


def _side_by_side(title: str, systems: Mapping[str, dict[str, Any]], key: str) -> list[str]:
    """F1 of each slice for each system; the support is that of gold and the same for all."""
    slices = next(iter(systems.values()))[key]
    rows = [
        [name, f"{slices[name]['support']:,}", *(_percent(one[key][name]["f1"]) for one in systems.values())]
        for name in slices
    ]
    return _table([title, "support", *systems], rows)


def _all_scores(title: str, systems: Mapping[str, dict[str, Any]], key: str) -> list[str]:
    """Precision, recall and F1 of each type or class for each system."""
    slices = next(iter(systems.values()))[key]
    columns = {"precision": "precision", "recall": "recall", "f1": "F1"}
    header = [f"{name} {shown}" for name in systems for shown in columns.values()]
    rows = [
        [name, f"{slices[name]['support']:,}"]
        + [_percent(one[key][name][column]) for one in systems.values() for column in columns]
        for name in slices
    ]
    return _table([title, "support", *header], rows)


def _confusion_lines(name: str, confusion: Mapping[str, Any]) -> list[str]:
    """Gold classes in rows, predicted ones in columns; the mean over the seeds."""
    labels, counts = confusion["labels"], confusion["counts"]
    if len(labels) > _MOST_CLASSES:
        return [f"{name}: metrics.json has the confusion matrix of the {len(labels):,} classes"]
    whole = all(float(count).is_integer() for row in counts for count in row)
    rows = [
        [label, *(f"{count:,.0f}" if whole else f"{count:,.1f}" for count in row)]
        for label, row in zip(labels, counts, strict=True)
    ]
    return _table([f"{name}: gold in rows, predicted", *labels], rows)


def _error_lines(systems: Mapping[str, dict[str, Any]]) -> list[str]:
    kinds = next(iter(systems.values()))["errors"]
    rows = [[kind, *(f"{one['errors'][kind]:,.1f}" for one in systems.values())] for kind in kinds]
    return _table(["entities, mean of seeds", *systems], rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (header, *rows)
    ]


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _interval(bounds: Sequence[float], sign: str = "", scale: float = 100) -> str:
    low, high = (f"{scale * bound:{sign}.2f}" for bound in bounds)
    return f"[{low}, {high}]"
