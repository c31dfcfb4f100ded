"""Result of the evaluations in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from domainbert.base.errors import counted
from domainbert.base.progress import format_duration
from domainbert.base.table import Cell, Table, score_cell
from domainbert.metrics.headline import Headline
from domainbert.report.evaluations import Evaluation, Pair, System
from domainbert.report.provenance import format_time
from domainbert.report.runs import Run

_MAX_SENTENCES = 3  # more comparisons get a table


def verdicts(evaluation: Evaluation) -> list[str]:
    """Return a sentence for each comparison, or one for many; without any, a sentence with the score of each system."""
    if len(evaluation.pairs) > _MAX_SENTENCES:
        num_intervals = sum(pair.interval is not None for pair in evaluation.pairs)
        num_significant = sum(pair.is_significant for pair in evaluation.pairs)
        num_by_chance = 0.05 * num_intervals  # of 95 % intervals
        found = f"{num_significant} of {num_intervals} intervals exclude 0. If all systems were equally good, about"
        return [f"{found} {num_by_chance:.1f} would by chance: confirm a single difference on other data."]
    if evaluation.pairs:
        return [_comparison_sentence(pair, evaluation.metric) for pair in evaluation.pairs]
    return [_score_sentence(system, evaluation.metric) for system in evaluation.systems]


def comparison_table(evaluation: Evaluation) -> Table | None:
    """Return a table with a row for each system that is compared with the first one; None for few comparisons."""
    if len(evaluation.pairs) <= _MAX_SENTENCES:
        return None
    metric, first = evaluation.metric, evaluation.pairs[0].a
    rows: list[list[Cell]] = []
    for pair in evaluation.pairs:
        if pair.interval is None:
            result = "unknown"
        elif not pair.is_significant:
            result = "no significant difference"
        else:
            result = "worse" if _first_is_better(pair, metric) else "better"
        rows.append([pair.b, result, score_cell(pair.difference, metric.percent, pair.interval, sign="+")])
    return Table(["system", "result", f"{first} minus this"], rows, f"Systems compared with {first}")


def _first_is_better(pair: Pair, metric: Headline) -> bool:
    return (pair.difference > 0) == metric.higher_is_better


def _comparison_sentence(pair: Pair, metric: Headline) -> str:
    better, worse = (pair.a, pair.b) if _first_is_better(pair, metric) else (pair.b, pair.a)
    unit = f"points of {metric.name}" if metric.percent else f"of {metric.name}"
    lead = f"{_number(abs(pair.difference), metric)} {unit}"
    if pair.interval is None:
        text = f"{pair.a} and {pair.b} score the same"
        if pair.difference:
            text = f"{better} is ahead of {worse} by {lead}"
        return f"{text}; the significance is unknown, because they were not evaluated on the same resamples."
    if not pair.is_significant:
        difference = f"{_number(pair.difference, metric, '+')} {unit} {_interval(pair.interval, metric, '+')}"
        return f"No significant difference between {pair.a} and {pair.b}: {pair.a} minus {pair.b} is {difference}."
    return f"{better} is better than {worse} by {lead} {_interval(sorted(map(abs, pair.interval)), metric)}."


def _score_sentence(system: System, metric: Headline) -> str:
    score, interval = system.scores[metric.key], system.scores.get("interval")
    if score is None:
        return f"{system.name}: {metric.name} is undefined."
    unit = " %" if metric.percent else ""
    bounds = f" {_interval(interval, metric)}" if interval else ""
    return f"{system.name}: {metric.name} is {_number(score, metric)}{unit}{bounds}."


def _number(value: float, metric: Headline, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}" if metric.percent else f"{value:{sign}.4f}"


def _interval(bounds: Sequence[float], metric: Headline, sign: str = "") -> str:
    return f"[{', '.join(_number(bound, metric, sign) for bound in bounds)}]"


def run_summary(runs: Sequence[Run]) -> str:
    """Return a line with the number of stages, duration and start of each run."""
    summaries = []
    for run in runs:
        started = min((stage.record.started for stage in run.stages if stage.record.done), default="")
        seconds = sum(stage.record.wall_seconds for stage in run.stages)
        when = f"started {format_time(started)}" if started else "no stage is done"
        summaries.append(f"{run.name}: {counted(len(run.stages), 'stages')}, {format_duration(seconds)}, {when}")
    return "; ".join(summaries)


def run_warnings(runs: Sequence[Run], evaluations: Sequence[Evaluation]) -> list[str]:
    """Return messages about unfinished stages, then the warnings of stages, then further warnings of evaluations."""
    unfinished = []
    stage_warnings = []
    listed = set()  # warnings of evaluations that are also warnings of their stages
    for run in runs:
        for stage in run.stages:
            record = stage.record
            if not record.done:
                state = f"{record.state}: {record.reason}" if record.reason else record.state
                unfinished.append(f"{run.name}: stage {stage.name} is not done ({state})")
            for warning in record.metrics.get("warnings", []):
                stage_warnings.append(f"{stage.name}{run.suffix}: {warning}")
                listed.add(warning + run.suffix)
    others = [text for evaluation in evaluations for text in evaluation.warnings if text not in listed]
    return [*unfinished, *stage_warnings, *others]
