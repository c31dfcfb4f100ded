"""The table of scores that a recipe prints at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.scores import shown_interval, shown_score

_METRIC = {"key": "f1", "name": "F1", "percent": True}  # of manifests that do not name one
_HEADER = ("stage", "system", "metric", "mean", "95 % interval", "seeds", "first minus this", "pieces/word", "words/s")


@dataclass(frozen=True)
class SystemScore:
    """The headline score of a system on a test set, the mean of its seeds."""

    system: str
    metric: str
    """Its name in tables: "macro F1"."""
    score: float | None
    """None if it is undefined."""
    interval: list[float] | None
    percent: bool
    """It is a share, and shown in percent."""
    seeds: int | None

    @property
    def shown_score(self) -> str:
        """The score as a person reads it."""
        return shown_score(self.score, self.percent)

    @property
    def shown_interval(self) -> str:
        """Its interval in brackets; empty without one."""
        return shown_interval(self.interval, self.percent)


def system_scores(metrics: Mapping[str, Any]) -> list[SystemScore]:
    """The scores of the systems in a stage's metrics, see `results_table`; none where it compares no systems."""
    metric = {**_METRIC, **metrics.get("metric", {})}
    key, name, percent = metric["key"], metric["name"], metric["percent"]
    return [
        SystemScore(system, name, made[key], made.get("interval"), percent, made.get("seeds"))
        for system, made in metrics.get("systems", {}).items()
    ]


def results_table(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """A text table of all stages whose metrics hold `systems`; empty when there is none.

    Args:
        stages: stage name to `{"stage": ..., "metrics": ...}`; metrics hold `metric`: {key, name, percent}, `systems`:
            {name: {interval, seeds, cost, and the metric under its key}} and `paired`: [{a, b, difference, interval}].
    """
    rows = [row for name, made in stages.items() for row in _rows(name, made["metrics"] or {})]
    return _aligned([_HEADER, *rows]) if rows else ""


def _rows(stage: str, metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    differences = {pair["b"]: pair for pair in metrics.get("paired", [])}
    rows: list[tuple[str, ...]] = []
    for one in system_scores(metrics):
        difference, pair = "", differences.get(one.system)
        if pair is not None:
            interval = shown_interval(pair.get("interval"), one.percent)
            difference = f"{shown_score(pair['difference'], one.percent, '+')} {interval}".rstrip()
        cost = metrics["systems"][one.system].get("cost", {})
        pieces = f"{cost['pieces_per_word']:.3f}" if cost else ""
        speed = f"{cost['words_per_second']:,.0f}" if cost else ""
        seeds = "" if one.seeds is None else str(one.seeds)
        score = (one.metric, one.shown_score, one.shown_interval, seeds)
        rows.append((stage, one.system, *score, difference, pieces, speed))
    return rows


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
