"""The table at the end of a run: every stage that compared systems, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_METRICS = {"ner": "entity F1", "classification": "macro F1"}
_HEADER = ("stage", "system", "metric", "mean", "95 % interval", "seeds", "first minus this", "pieces/word", "words/s")


def results_table(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """A text table of all stages whose metrics hold `systems`; empty when there is none.

    Args:
        stages: stage name to `{"stage": ..., "metrics": ...}`; metrics hold `task`, `systems`: {name: {f1, interval,
            seeds, cost}} and `paired`: [{a, b, difference, interval}]; scores are shares, shown in percent.
    """
    rows = [row for name, made in stages.items() for row in _rows(name, made["metrics"] or {})]
    return _aligned([_HEADER, *rows]) if rows else ""


def _rows(stage: str, metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    metric = _METRICS.get(metrics.get("task", ""), "F1")
    differences = {pair["b"]: pair for pair in metrics.get("paired", [])}
    rows: list[tuple[str, ...]] = []
    for name, system in metrics.get("systems", {}).items():
        difference = "" if name not in differences else _with_interval(differences[name])
        seeds = str(system.get("seeds", ""))
        interval = _interval(system.get("interval"))
        cost = system.get("cost", {})
        pieces = f"{cost['pieces_per_word']:.3f}" if cost else ""
        speed = f"{cost['words_per_second']:,.0f}" if cost else ""
        rows.append((stage, name, metric, _percent(system["f1"]), interval, seeds, difference, pieces, speed))
    return rows


def _with_interval(pair: Mapping[str, Any]) -> str:
    return f"{100 * pair['difference']:+.2f} {_interval(pair.get('interval'))}".rstrip()


def _interval(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f"[{_percent(bounds[0])}, {_percent(bounds[1])}]"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
