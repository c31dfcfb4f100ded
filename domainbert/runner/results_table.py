"""Format the table of scores that a recipe prints at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domainbert.base.layout import width
from domainbert.base.table import Cell, Number, Table, number_cell, score_cell
from domainbert.metrics.table import cost_cells, cost_heads

_DEFAULT_METRIC = {"key": "f1", "name": "F1", "percent": True}  # of manifests without a metric
_COSTS = ("pieces_per_word", "words_per_second")
_HEADS = ("stage", "system", "metric", "mean", "seeds", "first minus this", *cost_heads(_COSTS))


@dataclass(frozen=True)
class SystemScore:
    """Headline score of a system on a test set: the mean over its seeds."""

    system: str
    metric: str  # name of the metric in tables: "macro F1"
    score: float | None  # None if it is undefined
    interval: list[float] | None
    percent: bool  # whether the score is a share, shown in percent
    seeds: int | None

    @property
    def cell(self) -> Number:
        """The score with its interval, in a table."""
        return score_cell(self.score, self.percent, self.interval)


def system_scores(metrics: Mapping[str, Any]) -> list[SystemScore]:
    """Return the score of each system in the metrics of a stage; [] if the stage evaluates no systems."""
    metric = {**_DEFAULT_METRIC, **metrics.get("metric", {})}
    key, name, percent = metric["key"], metric["name"], metric["percent"]
    return [
        SystemScore(system, name, values[key], values.get("interval"), percent, values.get("seeds"))
        for system, values in metrics.get("systems", {}).items()
    ]


def results_table(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a text table of all stages whose metrics have `systems`; empty if there are none.

    Args:
        stages: stage name to `{"stage": ..., "metrics": ...}`; the metrics have `metric`: {key, name, percent},
            `systems`: {name: {interval, seeds, cost, and the score under the metric's key}} and `paired`:
            [{a, b, difference, interval}].
    """
    rows = [row for name, entry in stages.items() for row in _table_rows(name, entry["metrics"] or {})]
    if not rows:
        return ""
    header, *lines = Table(_HEADS, rows).lines()
    return "\n".join([header, "-" * max(map(width, [header, *lines])), *lines])


def _table_rows(stage: str, metrics: Mapping[str, Any]) -> list[list[Cell]]:
    """`paired` in the metrics compares the first system with the others."""
    pairs = {pair["b"]: pair for pair in metrics.get("paired", [])}
    rows: list[list[Cell]] = []
    for score in system_scores(metrics):
        pair = pairs.get(score.system)
        difference = score_cell(pair["difference"], score.percent, pair.get("interval"), "+") if pair else ""
        costs = cost_cells(metrics["systems"][score.system].get("cost", {}), _COSTS)
        rows.append([stage, score.system, score.metric, score.cell, number_cell(score.seeds), difference, *costs])
    return rows
