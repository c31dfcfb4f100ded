"""Format what a recipe prints at its end: the table of scores, and the command that uses its model."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domainbert.base.choices import allow_import_arguments
from domainbert.base.layout import width
from domainbert.base.run_record import RunRecord
from domainbert.base.table import Cell, Number, Table, number_cell, score_cell
from domainbert.metrics.table import cost_cells, cost_heads
from domainbert.runner.job_state import Job
from domainbert.runner.stage_table import stage_of

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
    if "systems" not in metrics:
        return []
    key, name, percent = (metrics["metric"][fact] for fact in ("key", "name", "percent"))
    return [
        SystemScore(system, name, values[key], values.get("interval"), percent, values.get("seeds"))
        for system, values in metrics["systems"].items()
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


def model_lines(jobs: Mapping[str, Job], records: Mapping[str, RunRecord]) -> list[str]:
    """Return the folder of the recipe's task model, and the command that predicts with it; [] without a task model.

    It is the best seed of the first system of the last evaluation, or without one of the last stage that trained a
    task.
    """
    evaluations = [job.settings.references for job in jobs.values() if job.stage.name == "evaluate"]
    evaluated = [stage_of(reference) for references in reversed(evaluations) for reference in references.values()]
    trained = {name: record.metrics["best"] for name, record in records.items() if "best" in record.metrics}
    name = next((name for name in (*evaluated, *reversed(trained)) if name in trained), None)
    if name is None:
        return []
    folder = str(jobs[name].out / trained[name])
    command = shlex.join(["domainbert", "predict", *allow_import_arguments(), "--model", folder])
    return [f"model: {folder}", f"predict: {command} --input FILE --out FOLDER"]
