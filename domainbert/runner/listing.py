"""List the runs below a folder, with the state of each stage: the command `domainbert runs`. Reads only small files."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.files import RUN, read_json
from domainbert.base.freshness import format_examples
from domainbert.base.layout import printable
from domainbert.base.progress import format_duration
from domainbert.base.run_record import RunRecord, read_record
from domainbert.base.table import Cell, Number, Table
from domainbert.runner.claim import (
    DONE,
    INTERRUPTED,
    LOCK,
    NEVER_RUN,
    RECIPE,
    UNSEALED,
    is_running,
    read_state,
    stage_of_config,
)
from domainbert.runner.results_table import SystemScore, system_scores
from domainbert.settings.command_line import ParsedArguments

FLAGS = {"json": "none"}
HELP = """\
usage: domainbert runs [FOLDER] [--json]

List the runs in a folder and below it (default: runs): the state of each stage, time, and scores on test sets with
confidence intervals. A list of several runs shows the number of finished stages; a single run shows all its stages.

  --json               print JSON, with all stages of all runs

Only the sizes of files are compared; `domainbert run RECIPE --dry-run --verify` hashes them.
"""

STATES = ("damaged", "failed", "running", "killed", "stopped", "unfinished")
"""States of an unfinished stage or search, the most urgent first."""
_SEARCH, _TRIALS = "study.json", "trials"  # written by `domainbert tune`; its trials are not listed
_TAIL_BYTES = 1 << 14  # bytes at the end of a log that contain its last line
_READ_ERRORS = (DomainbertError, OSError, AttributeError, IndexError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class StageStatus:
    """The state of a stage's folder."""

    name: str
    stage: str  # name of the stage function; empty if unknown
    state: str  # `done`, `never run`, or an entry of `STATES`
    why: str = ""  # reason of a state other than `done`
    resume_command: str = ""  # command that resumes the stage; empty if it cannot be resumed
    started: datetime | None = None
    seconds: float | None = None
    scores: list[SystemScore] = field(default_factory=list)
    validation: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """The stages of a recipe, in order; or a single stage or search outside a recipe (`is_single`)."""

    path: Path
    stages: list[StageStatus]
    is_single: bool = False

    @property
    def state(self) -> str:
        """`done` if all stages are done, otherwise the most urgent state of a stage."""
        states = {stage.state for stage in self.stages}
        if states <= {DONE}:
            return DONE
        return next((state for state in STATES if state in states), "unfinished")  # some stages have never run

    @property
    def started(self) -> datetime | None:
        """Earliest start of a stage."""
        return min((stage.started for stage in self.stages if stage.started), default=None)

    @property
    def seconds(self) -> float | None:
        """Sum over the stages; a resumed stage counts from its last start. None if no time is known."""
        seconds = [stage.seconds for stage in self.stages if stage.seconds is not None]
        return sum(seconds) if seconds else None


def perform(typed: ParsedArguments) -> int:
    """Print the list of runs and return exit code 0."""
    if unknown := [*typed.words[1:], *(f"--{name}" for name, _ in typed.options), *typed.files]:
        raise DomainbertError(
            where="runs", found=f"'{unknown[0]}'", expected="at most one folder, and optionally --json"
        )
    folder = Path(typed.words[0] if typed.words else "runs")
    runs, unreadable = list_runs(folder)
    if "json" in typed.flags:
        listing = {"folder": str(folder), "runs": [_as_json(run) for run in runs], "unreadable": unreadable}
        print(json.dumps(listing, indent=2))
        return 0
    lines = [*runs_table(runs, folder), *(f"cannot be read: {reason}" for reason in unreadable)]
    print("\n".join(map(printable, lines)))  # names and messages come from files
    return 0


def _as_json(run: Run) -> dict[str, Any]:
    stages = [
        {
            **asdict(stage),
            "started": stage.started.isoformat() if stage.started else None,
            "validation": {name: value if math.isfinite(value) else None for name, value in stage.validation.items()},
        }
        for stage in run.stages
    ]
    started = run.started.isoformat() if run.started else None
    return {"path": str(run.path), "state": run.state, "started": started, "seconds": run.seconds, "stages": stages}


def list_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """Return the runs in a folder and below it, sorted by path, and a line for each unreadable folder.

    Links are followed, and each folder is visited once.

    Raises:
        DomainbertError: the folder does not exist.
    """
    if not folder.is_dir():
        raise DomainbertError(f"'{folder}': no such folder", expected="a run, or a folder that contains runs")
    runs, unreadable, visited = list[Run](), list[str](), set[str]()

    def record_error(error: OSError) -> None:
        unreadable.append(f"{error.filename}: {error.strerror}")

    for root, folders, files in os.walk(folder, onerror=record_error, followlinks=True):
        real_path = os.path.realpath(root)
        run = None if real_path in visited else _find_run(Path(root), folders, files)
        if real_path in visited or (run and run.is_single):
            folders.clear()  # `os.walk` visits only the folders that remain in the list
        # folders of stages belong to this run
        stages = {stage.name for stage in run.stages} if run else set()
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in stages)
        runs += [run] if run else []
        visited.add(real_path)
    return runs, unreadable


def _find_run(folder: Path, folders: Sequence[str], files: Sequence[str]) -> Run | None:
    """Return the run of a recipe, stage or search in a folder with these entries; None for any other folder."""
    if _is_stage(folder):
        return Run(folder, [inspect_stage(folder)], is_single=True)
    if _SEARCH in files or any((folder / _TRIALS).glob("[0-9]" * 5)):  # a search without finished trials has no file
        return Run(folder, [_inspect_search(folder)], is_single=True)
    if RECIPE not in files:
        return None
    existing = [name for name in sorted(folders) if _is_stage(folder / name)]
    functions = _stage_functions(folder / RECIPE)
    stages = [
        inspect_stage(folder / name) if name in existing else StageStatus(name, functions[name], NEVER_RUN)
        for name in dict.fromkeys([*functions, *existing])
    ]
    return Run(folder, stages) if stages else None


def _is_stage(folder: Path) -> bool:
    try:
        is_locked = LOCK in {entry.name for entry in os.scandir(folder)}
        return is_locked or bool(stage_of_config(folder)) or read_record(folder) is not None
    except PermissionError:  # `inspect_stage` reports it
        return True
    except (OSError, DomainbertError):
        return False


def _stage_functions(path: Path) -> dict[str, str]:
    try:
        content = read_json(path, "the stages of a recipe")
        if "command" not in content:  # a file of another program
            return {}
        return {str(name): str(function) for name, function in content["stages"].items()}
    except _READ_ERRORS:
        return {}


def inspect_stage(folder: Path) -> StageStatus:
    """Return the state of a stage's folder; a broken file gives the state `damaged`, never an exception."""
    try:
        output_state, record = read_state(folder)
        if record is None:  # for example, the stage was killed before it wrote its record
            record = RunRecord(stage=stage_of_config(folder))
        started = datetime.fromisoformat(record.started).astimezone(timezone.utc) if record.started else None
        status = StageStatus(folder.name, record.stage, output_state, started=started)
        if record.done:
            return _finished_status(folder, record, status)
    except _READ_ERRORS as error:
        return StageStatus(folder.name, stage_of_config(folder), "damaged", why=_describe_read_error(error))
    if is_running(folder):
        seconds = None if started is None else max(0.0, time.time() - started.timestamp())
        return replace(status, state="running", why=_last_step(folder), seconds=seconds)
    state, why = _ended_state(record, output_state)
    resume_command = record.resume_command if output_state == INTERRUPTED else ""
    return replace(status, state=state, why=why, resume_command=resume_command)


def _describe_read_error(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror})"
    message = str(error) if isinstance(error, DomainbertError) else f"{RUN} is invalid ({error!r}); delete this folder"
    return " ".join(message.split())  # on one line


def _ended_state(record: RunRecord, output_state: str) -> tuple[str, str]:
    """Return state and reason of a stage that is neither done nor running; `output_state` is from `read_state`."""
    if record.state in ("failed", "stopped"):
        return record.state, f"{' '.join(record.reason.split()) or 'no reason given'}; {output_state}"
    if output_state == UNSEALED:
        return "damaged", output_state
    return "killed", f"killed, or its machine went down; {output_state}"


def _finished_status(folder: Path, record: RunRecord, status: StageStatus) -> StageStatus:
    """Complete the status of a finished stage; of its files, only the sizes are compared."""
    metrics = record.metrics
    state, why = DONE, ""
    if errors := format_examples(metrics.get("errors", [])):
        state, why = "failed", f"errors in the data: {errors}"
    damage = format_examples(record.damage(folder, hashes=None))
    if damage:  # more urgent than errors
        state, why = "damaged", damage
    validation = {name: value for name, value in metrics.items() if name.startswith("validation_")}
    last_validation = metrics.get("validation")  # of a stage without seeds, such as pretraining
    if isinstance(last_validation, dict) and "loss" in last_validation:
        validation["validation_loss"] = last_validation["loss"]
    return replace(
        status,
        state=state,
        why=why,
        seconds=float(record.wall_seconds),
        scores=[] if damage else system_scores(metrics),
        validation={} if damage else {name: float(value) for name, value in validation.items()},
    )


def _last_step(folder: Path) -> str:
    logs = [*folder.glob("logs/metrics.jsonl"), *folder.glob("*/logs/metrics.jsonl")]
    try:
        newest = max(logs, key=lambda path: path.stat().st_mtime)
        with open(newest, "rb") as file:
            file.seek(max(0, newest.stat().st_size - _TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]  # the last line may be incomplete
        step = f"step {int(json.loads(lines[-1])['step']):,}"
    except _READ_ERRORS:
        return ""
    part = newest.parent.parent  # PART/logs/metrics.jsonl
    return step if part == folder else f"{part.name}, {step}"


def _inspect_search(folder: Path) -> StageStatus:
    # values for a search without a summary; if its summary is invalid, those that come before the error are replaced
    state, why, validation, seconds, started = "unfinished", "no trial is finished yet", {}, None, None
    try:
        facts = read_json(folder / _SEARCH, "the summary of a search")
        trials, best, seconds = facts["trials"], facts["best"], float(facts["seconds"])
        started = datetime.fromisoformat(facts["started"]) if facts["started"] else None
        total = facts["requested_trials"]
        state = DONE if trials >= total else "unfinished"
        why = f"{trials:,} of {total:,} trials"
        if best is not None:
            validation = {name: float(value) for name, value in zip(facts["objective"], best["values"], strict=True)}
    except _READ_ERRORS as error:
        if (folder / _SEARCH).exists():
            state, why = "damaged", f"{_SEARCH} is invalid ({error}); delete it and run domainbert tune again"
    if state != DONE and any(is_running(marker.parent) for marker in folder.glob(f"{_TRIALS}/*/*/{LOCK}")):
        state = "running"
    return StageStatus(folder.name, "tune", state, why, started=started, seconds=seconds, validation=validation)


def runs_table(runs: Sequence[Run], folder: Path) -> list[str]:
    """Return the lines of the table: start, time and state of each run, followed by lines for its stages.

    Stages are shown if they have scores or are unfinished; for a run that is `folder` itself all stages are shown.
    """
    rows = [row for run in runs for row in _run_rows(run, all_stages=run.path == folder)]
    return Table(["started", "time", "run"], rows).lines() if runs else ["no runs"]


def _run_rows(run: Run, all_stages: bool) -> Iterator[list[Cell]]:
    started = run.started.astimezone().strftime("%Y-%m-%d %H:%M") if run.started else ""
    if run.is_single:
        state = f"{run.stages[0].stage or 'a stage'}, {_state_text(run.stages[0])}"
        shown = [stage for stage in run.stages if stage.scores]
    else:
        state = f"{sum(stage.state == DONE for stage in run.stages)} of {len(run.stages)} stages done"
        shown = [stage for stage in run.stages if all_stages or stage.scores or stage.state != DONE]
    yield [started, _duration_cell(run.seconds), f"{run.path}: {state}"]
    times: list[Cell] = []
    texts: list[list[Cell]] = []
    for stage in shown:
        name = "" if run.is_single else stage.name
        time_cell = _duration_cell(stage.seconds) if all_stages else ""
        scores = Table(["", "", ""], [[score.system, score.metric, score.cell] for score in stage.scores])
        for line in scores.lines() if stage.scores else [_state_text(stage)]:
            times.append(time_cell)
            texts.append([name, line])
            name = time_cell = ""  # only in the first line of the stage
    for cell, text in zip(times, Table(["", ""], texts).lines(), strict=True):
        yield ["", cell, f"  {text}"]


def _duration_cell(seconds: float | None) -> Cell:
    return "" if seconds is None else Number(format_duration(seconds), seconds)


def _state_text(stage: StageStatus) -> str:
    """A stage that has metrics and no reason is done: the text then has only the metrics."""
    scores = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in stage.validation.items())
    if stage.why.startswith(stage.state):  # the reason repeats the state, such as "killed, or its machine went down"
        state = stage.why
    else:
        state = f"{stage.state}: {stage.why}" if stage.why else stage.state
    if scores:
        return f"{state}, {scores}" if stage.why else scores
    return f"{state}; to resume: {stage.resume_command}" if stage.resume_command else state
