"""The table at the end of a run: every stage that compared systems, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_METRIC = {"key": "f1", "name": "F1", "percent": True}  # of manifests that do not name one
_HEADER = ("stage", "system", "metric", "mean", "95 % interval", "seeds", "first minus this", "pieces/word", "words/s")


def results_table(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """A text table of all stages whose metrics hold `systems`; empty when there is none.

    Args:
        stages: stage name to `{"stage": ..., "metrics": ...}`; metrics hold `metric`: {key, name, percent}, `systems`:
            {name: {interval, seeds, cost, and the metric under its key}} and `paired`: [{a, b, difference, interval}].
    """
    rows = [row for name, made in stages.items() for row in _rows(name, made["metrics"] or {})]
    return _aligned([_HEADER, *rows]) if rows else ""


def _rows(stage: str, metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    metric = {**_METRIC, **metrics.get("metric", {})}
    scale = 100 if metric["percent"] else 1
    differences = {pair["b"]: pair for pair in metrics.get("paired", [])}
    rows: list[tuple[str, ...]] = []
    for name, system in metrics.get("systems", {}).items():
        difference = "" if name not in differences else _with_interval(differences[name], scale)
        seeds = str(system.get("seeds", ""))
        interval = _interval(system.get("interval"), scale)
        cost = system.get("cost", {})
        pieces = f"{cost['pieces_per_word']:.3f}" if cost else ""
        speed = f"{cost['words_per_second']:,.0f}" if cost else ""
        score = f"{scale * system[metric['key']]:.2f}"
        rows.append((stage, name, metric["name"], score, interval, seeds, difference, pieces, speed))
    return rows


def _with_interval(pair: Mapping[str, Any], scale: float) -> str:
    return f"{scale * pair['difference']:+.2f} {_interval(pair.get('interval'), scale)}".rstrip()


def _interval(bounds: Sequence[float] | None, scale: float) -> str:
    return "" if bounds is None else f"[{scale * bounds[0]:.2f}, {scale * bounds[1]:.2f}]"


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
