"""Verdict: the outcome in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence

from domainbert.base.progress import format_duration
from domainbert.metrics.headline import Headline
from domainbert.report.evaluations import Evaluation, Pair
from domainbert.report.figures import is_told
from domainbert.report.making import shown_time
from domainbert.report.runs import Run


def verdicts(evaluation: Evaluation) -> list[str]:
    """A sentence for each comparison; of a single system, one with its score."""
    if evaluation.pairs:
        return [_compared(pair, evaluation.metric) for pair in evaluation.pairs]
    return [_alone(evaluation, number) for number in range(len(evaluation.systems))]


def _compared(pair: Pair, metric: Headline) -> str:
    a_first = (pair.difference > 0) == metric.higher_is_better
    better, worse = (pair.a, pair.b) if a_first else (pair.b, pair.a)
    by = f"{_short(abs(pair.difference), metric)} {_unit(metric)}"
    if pair.interval is None:
        apart = f"{better} is ahead of {worse} by {by}" if pair.difference else f"{pair.a} and {pair.b} score the same"
        return (
            f"{apart}; whether that is chance cannot be told, for the two were evaluated "
            "apart and without draws of the same documents."
        )
    if not is_told(pair):
        low, high = pair.interval
        told = f"{pair.a} minus {pair.b} is {_short(pair.difference, metric, '+')} {_unit(metric)}"
        return f"No difference can be told between {pair.a} and {pair.b}: {told} {_bounds((low, high), metric, '+')}."
    low, high = sorted(map(abs, pair.interval))
    return f"{better} is better than {worse} by {by} {_bounds((low, high), metric)}."


def _alone(evaluation: Evaluation, number: int) -> str:
    system, metric = evaluation.systems[number], evaluation.metric
    found = system.scores.get("interval")
    bounds = f" {_bounds(found, metric)}" if found else ""
    if system.scores[metric.key] is None:
        return f"{system.name}: {metric.name} is undefined."
    unit = "%" if metric.percent else ""
    return f"{system.name}: {metric.name} is {_short(system.scores[metric.key], metric)}{unit and ' ' + unit}{bounds}."


def _unit(metric: Headline) -> str:
    return f"points of {metric.name}" if metric.percent else f"of {metric.name}"


def _short(value: float, metric: Headline, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}" if metric.percent else f"{value:{sign}.4f}"


def _bounds(bounds: Sequence[float], metric: Headline, sign: str = "") -> str:
    return f"[{', '.join(_short(one, metric, sign) for one in bounds)}]"


def in_short(runs: Sequence[Run]) -> str:
    """A line of how many stages each run has, when it was started, and how long it took."""
    told = []
    for run in runs:
        started = min((stage.manifest["started"] for stage in run.stages if stage.manifest.get("started")), default="")
        seconds = sum(stage.manifest.get("wall_seconds", 0) for stage in run.stages)
        stages, when = _number(run.stages), f"started {shown_time(started)}" if started else "none is done"
        told.append(f"{run.name}: {stages}, {format_duration(seconds)}, {when}")
    return "; ".join(told)


def troubles(runs: Sequence[Run], evaluations: Sequence[Evaluation]) -> list[str]:
    """Lines that a reader has to know before the numbers: stages that are not done, and all warnings."""
    found = [
        f"{run.name}: stage {stage.name} is not done ({stage.state}{_reason(stage.status.get('reason'))})"
        for run in runs
        for stage in run.stages
        if stage.state != "done"
    ]
    for run in runs:
        for stage in run.stages:
            found += [f"{stage.name}: {warning}" for warning in stage.metrics.get("warnings") or []]
    told = "\n".join(found)
    return found + [warning for one in evaluations for warning in one.warnings if warning not in told]


def _number(stages: Sequence[object]) -> str:
    return f"{len(stages)} stage{'s' if len(stages) > 1 else ''}"


def _reason(reason: object) -> str:
    return f": {reason}" if reason else ""
