"""Print the runs that `domainbert runs` lists, as a table or as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.layout import printable
from domainbert.base.progress import format_duration
from domainbert.base.redact import redact
from domainbert.runner.claim import DONE
from domainbert.runner.listing import Run, StageStatus, list_runs
from domainbert.settings.command_line import ParsedArguments

FLAGS = {"json": "none"}
HELP = """\
usage: domainbert runs [FOLDER] [--json]

List the runs in a folder and below it (default: runs): the state of each stage, time, and scores on test sets with
confidence intervals. A list of several runs shows the number of finished stages; a single run shows all its stages.

  --json               print JSON, with all stages of all runs

Only the sizes of files are compared; `domainbert run RECIPE --dry-run --verify` hashes them.
"""


def help_text() -> str:
    """Return the text of `domainbert runs --help`."""
    return HELP


def perform(typed: ParsedArguments) -> int:
    """Print the list of runs and return exit code 0; raise `DomainbertError` if the folder does not exist."""
    if len(typed.words) > 1 or typed.files or typed.options:
        raise DomainbertError("runs: expected at most one folder and --json, such as: domainbert runs FOLDER")
    folder = Path(typed.words[0] if typed.words else "runs")
    runs, unreadable = list_runs(folder)
    if "json" in typed.flags:
        listing = {"folder": str(folder), "runs": [_as_json(run) for run in runs], "unreadable": unreadable}
        print(json.dumps(redact(listing), indent=2))
        return 0
    lines = [*runs_table(runs, folder), *(f"cannot be read: {reason}" for reason in unreadable)]
    print("\n".join(map(printable, lines)))  # names and messages come from files
    return 0


def _as_json(run: Run) -> dict[str, Any]:
    stages = [
        {
            **asdict(stage),
            "started": stage.started and stage.started.isoformat(),
            "validation": {name: value if math.isfinite(value) else None for name, value in stage.validation.items()},
        }
        for stage in run.stages
    ]
    started = run.started and run.started.isoformat()
    return {"path": str(run.path), "state": run.state, "started": started, "seconds": run.seconds, "stages": stages}


def runs_table(runs: Sequence[Run], folder: Path) -> list[str]:
    """Return the lines of the table: start, time and state of each run, followed by lines for its stages.

    Stages are shown if they have scores or are unfinished; for a run that is `folder` itself all stages are shown.
    """
    lines = [row for run in runs for row in _run_lines(run, whole=run.path == folder)]
    return [f"{'started':16}  {'time':>7}  run", *lines] if runs else ["no runs"]


def _run_lines(run: Run, whole: bool) -> Iterator[str]:
    """Yield the line of a run and the lines of its stages; `whole` shows all stages."""
    started = run.started.astimezone().strftime("%Y-%m-%d %H:%M") if run.started else ""
    done, first = sum(stage.state == DONE for stage in run.stages), run.stages[0]
    finished = f"{done} of {len(run.stages)} stages done"
    state = f"{first.stage or 'a stage'}, {_state_text(first)}" if run.is_single else finished
    yield f"{started:16}  {_format_seconds(run.seconds):>7}  {run.path}: {state}"
    shown = [stage for stage in run.stages if stage.scores or (not run.is_single and (whole or stage.state != DONE))]
    width = 0 if run.is_single else max((len(stage.name) for stage in shown), default=0) + 2
    for stage in shown:
        seconds = _format_seconds(stage.seconds) if whole else ""
        for index, line in enumerate(_score_lines(stage) or [_state_text(stage)]):
            name = stage.name if width and not index else ""
            yield f"{'':16}  {'' if index else seconds:>7}    {name:{width}}{line}"


def _format_seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def _state_text(stage: StageStatus) -> str:
    """Return state, reason and resume command of a stage; for a finished training its validation metrics."""
    scores = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in stage.validation.items())
    state = stage.why if stage.why.startswith(stage.state) else f"{stage.state}: {stage.why}".removesuffix(": ")
    if scores:
        return f"{state}, {scores}" if stage.why else scores
    return f"{state}; to resume: {stage.go_on}" if stage.go_on else state


def _score_lines(stage: StageStatus) -> list[str]:
    rows = [(score.system, score.metric, f"{score.shown_score} {score.shown_interval}") for score in stage.scores]
    systems, metrics = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    return [f"{system:{systems}}  {metric:{metrics}} {score}".rstrip() for system, metric, score in rows]
