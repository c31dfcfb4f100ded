"""Format the table of scores that a recipe prints at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domainbert.base.layout import format_interval, format_score, table, width

_DEFAULT_METRIC = {"key": "f1", "name": "F1", "percent": True}  # of manifests without a metric
_HEADER = ("stage", "system", "metric", "mean", "95 % interval", "seeds", "first minus this", "pieces/word", "words/s")


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
    def shown_score(self) -> str:
        """The formatted score."""
        return format_score(self.score, self.percent)

    @property
    def shown_interval(self) -> str:
        """The formatted confidence interval in brackets; empty if there is none."""
        return format_interval(self.interval, self.percent)


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
    header, *lines = table([_HEADER, *rows])
    return "\n".join([header, "-" * max(map(width, [header, *lines])), *lines])


def _table_rows(stage: str, metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the cells of each system in the metrics of a stage; `paired` compares the first system with the others."""
    differences = {pair["b"]: pair for pair in metrics.get("paired", [])}
    rows: list[tuple[str, ...]] = []
    for score in system_scores(metrics):
        difference = ""
        pair = differences.get(score.system)
        if pair is not None:
            interval = format_interval(pair.get("interval"), score.percent)
            difference = f"{format_score(pair['difference'], score.percent, '+')} {interval}".rstrip()
        cost = metrics["systems"][score.system].get("cost", {})
        pieces = f"{cost['pieces_per_word']:.3f}" if cost else ""
        speed = f"{cost['words_per_second']:,.0f}" if cost else ""
        seeds = "" if score.seeds is None else str(score.seeds)
        cells = (score.metric, score.shown_score, score.shown_interval, seeds, difference, pieces, speed)
        rows.append((stage, score.system, *cells))
    return rows
