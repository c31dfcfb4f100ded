"""Run one stage: lock its output folder, fill it and record the results, or leave it so that the stage can resume.

running.lock     exists while the stage runs and after an interruption; its process holds the lock
config.yaml      the resolved settings
run.json         the record of the stage, see `base/run_record.py`
"""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from domainbert.base.choices import allow_import_arguments, as_plain
from domainbert.base.errors import DomainbertError, ErrorsFound, TrainingStopped
from domainbert.base.fields import BY_INPUT
from domainbert.base.files import RUN, FileHashes
from domainbert.base.freshness import Freshness, format_examples
from domainbert.base.process import (
    StopSignals,
    launch_id,
    launched_by_domainbert,
    launched_world_size,
    raise_if_stopped,
    record_signals,
)
from domainbert.base.run_record import RunRecord, read_record
from domainbert.runner.claim import (
    BEING_WRITTEN,
    CONFIG,
    DONE,
    NEVER_RUN,
    NOT_RESUMABLE,
    UNSEALED,
    FolderFinished,
    FolderTaken,
    claim_folder,
    is_running,
    read_state,
)
from domainbert.runner.stage_table import Stage, referred_stages
from domainbert.settings.facts import hashes_of_inputs, stage_facts
from domainbert.settings.reader import Settings
from domainbert.settings.schema import defaults_of, fields_with_metadata
from domainbert.settings.yaml_files import dump_yaml
from domainbert.stages.stage import Inputs
from domainbert.training.processes import command_of_other_processes, end_with_parent, report_lost_rank

_PACKAGES = ("domainbert", "torch", "lightning", "tokenizers", "datasets", "numpy")  # versions in the record
_POLL_SECONDS = 0.2
_SETTLING_SECONDS = 10.0  # a process that has locked a folder writes its record within this time
_CLAIM_SECONDS = 600.0  # the first process reads the same inputs before it locks the folder


@dataclass(frozen=True)
class Job:
    """A stage with validated settings and its output folder."""

    stage: Stage
    settings: Settings
    out: Path
    freshness: Freshness
    key: str
    """Equal keys give equal results. An up-to-date folder keeps its key, even if an earlier version wrote it."""
    input_hashes: dict[str, str]
    inputs: Inputs = field(default_factory=Inputs, compare=False)
    """Inputs that were opened by the checks before the stage runs."""

    @property
    def trains(self) -> bool:
        """Whether all processes of a distributed launch run the stage; the first process alone runs other stages."""
        return "trainer" in defaults_of(self.stage.settings)


@dataclass(frozen=True)
class FolderState:
    """State of a job's output folder: up to date, resumable, damaged or empty."""

    reason: str  # the reason why the stage has to run; `done` if it is up to date
    record: RunRecord | None = None  # of a finished stage
    done: bool = False
    empty: bool = False
    resumable: bool = False
    """Whether the folder can be resumed: an interrupted run of the same job, or a job that differs only in parts."""
    changed: str = ""  # settings or inputs that changed after an interrupted run, which therefore cannot be resumed
    damaged: str = ""  # output files of a finished stage that are missing or were changed
    removes_outputs: bool = False
    """Whether resuming needs `--resume auto`, because it removes parts (seeds) that the settings no longer name, or, in
    the folder of a finished stage, outputs of changed input files."""


def make_job(
    stage: Stage,
    settings: Settings,
    out: Path,
    hashes: FileHashes,
    keys: Mapping[str, str],
    inputs: Inputs | None = None,
    new_key: bool = False,
) -> Job:
    """Return the job of a stage.

    Args:
        stage: the stage.
        settings: validated settings of the stage.
        out: output folder.
        hashes: hashes the input files.
        keys: job keys of the earlier stages of the recipe, by name; only stages that the settings refer to are used.
        inputs: inputs that are already open.
        new_key: whether to compute the key even if the folder is up to date; otherwise the job takes the recorded key.
    """
    input_hashes = hashes_of_inputs(settings, hashes)
    referred = {name: keys[name] for name in referred_stages(settings)}
    freshness = stage_facts(stage.name, stage.settings, settings, input_hashes, referred)
    try:
        state, record = read_state(out)
    except DomainbertError:  # foreign files, which `make_plan` has reported or will report
        state, record = NEVER_RUN, None
    is_fresh = record is not None and state != NOT_RESUMABLE and not freshness.changes(record.made_from)
    key = record.key if record is not None and is_fresh and not new_key else freshness.key
    return Job(stage, settings, out, freshness, key, input_hashes, inputs or Inputs())


def folder_state(job: Job) -> FolderState:
    """Return the state of a job's output folder."""
    state, record = read_state(job.out)
    finished = record if state == DONE else None
    reason = BEING_WRITTEN if finished is None and is_running(job.out) else state  # `claim_folder` raises `FolderTaken`
    if state in (NEVER_RUN, NOT_RESUMABLE):
        return FolderState(reason, empty=state == NEVER_RUN)
    if state == UNSEALED:
        return FolderState(state, damaged=state)
    if finished is not None and not finished.is_unchanged:
        return FolderState(f"{RUN} has changed", finished, damaged=f"{RUN} has changed")
    if finished is not None and finished.key == job.key:
        return FolderState(f"{state}{_version_suffix(finished)}", finished, done=True)

    # compare the job with the earlier run, which has finished, was interrupted or is still running
    earlier_facts = record.made_from if record is not None else {}
    changes = list(job.freshness.changes(earlier_facts).values())
    if finished is None and not changes:
        return FolderState(reason, resumable=True)
    removes_outputs = _removes_outputs(job, earlier_facts, is_finished=finished is not None)
    if removes_outputs is not None:  # a part of the output can be kept
        reason = "; ".join([reason, *changes] if finished is None else changes)
        return FolderState(reason, finished, resumable=True, removes_outputs=removes_outputs)
    if finished is not None:
        return FolderState(job.freshness.stale_reason(earlier_facts) or "changed", finished)
    if reason == BEING_WRITTEN:
        return FolderState(reason)
    return FolderState(f"{state}, and changed since", changed="; ".join(changes))


def _removes_outputs(job: Job, earlier_facts: Mapping[str, Any], is_finished: bool) -> bool | None:
    """Return `FolderState.removes_outputs` for a changed job; None if no output of the folder can be kept.

    Outputs can be kept in two cases: only the list of parts (seeds) has changed, or only the contents of the input
    files have changed, and the stage converts each input file separately.
    """
    parts_setting = job.stage.parts or ""  # name of the setting that lists the parts
    earlier_parts = earlier_facts.get(parts_setting)
    if job.freshness.changes(earlier_facts).keys() == {parts_setting} and isinstance(earlier_parts, list):
        return not set(earlier_parts) <= set(job.freshness.facts[parts_setting])
    by_input = any(job.settings.plain[name] is not None for name in fields_with_metadata(job.stage.settings, BY_INPUT))
    if by_input and job.freshness.only_input_contents_changed(earlier_facts):
        return is_finished  # an unfinished stage may lose outputs of changed files without `--resume auto`
    return None


def verified_state(job: Job, hashes: FileHashes, thorough: bool = False) -> FolderState:
    """Return `folder_state(job)`, or a `damaged` state if an output file is missing or was changed.

    A damaged folder is neither done nor resumable. Files whose size, times and inode are unchanged are not hashed,
    unless `thorough`.
    """
    state = folder_state(job)
    if state.record is None or not (state.done or state.resumable):
        return state
    damage = format_examples(state.record.damage(job.out, hashes, thorough))
    return FolderState(damage, state.record, damaged=damage) if damage else state


def finished_record(job: Job, hashes: FileHashes) -> RunRecord | None:
    """Return the record of an up-to-date folder; None for any other folder, such as one with foreign files."""
    try:
        state = verified_state(job, hashes)
    except DomainbertError:  # foreign files, which `make_plan` has reported or will report
        return None
    return state.record if state.done else None


def _version_suffix(record: RunRecord) -> str:
    recorded = record.versions.get("domainbert")
    return f", by domainbert {recorded}" if recorded not in (None, version_of("domainbert")) else ""


def raise_data_errors(record: RunRecord, out: Path) -> None:
    """Raise `ErrorsFound` if the metrics of a finished stage list errors in the data."""
    errors = record.metrics.get("errors", [])
    if errors:
        text = errors[0] if len(errors) == 1 else "\n  ".join([f"{len(errors):,} errors", *errors])
        raise ErrorsFound(f"{out}: {text}", errors)


def run_job(job: Job, resume_command: str, resume: bool = False, force: bool = False) -> RunRecord:
    """Run a stage, replace its earlier output, and return its record.

    `resume_command` resumes the stage after an interruption. With `resume`, the files of an interrupted run of the same
    job are kept and the run is resumed. Another process may have finished or interrupted the stage since the caller
    read its state: without `force`, a finished stage is kept and an interrupted one is resumed.

    Raises:
        DomainbertError: the stage failed or the disk is full (output files are removed unless the stage can be
            resumed), or the folder was removed.
        FolderTaken: another process is writing the folder.
        TrainingStopped: a signal stopped the stage; its progress is kept.
    """
    while True:
        state = folder_state(job)
        if state.done and state.record is not None and not force:
            return state.record
        interrupted = state.resumable and state.record is None
        try:
            return _run_once(job, state, resume_command, resume or (interrupted and not force))
        except FolderFinished:  # another process has finished the stage since `folder_state`
            if force:  # the next round would replace the output of the other process; without `force` it is kept
                raise


def _run_once(job: Job, state: FolderState, resume_command: str, resume: bool) -> RunRecord:
    """Empty the folder first unless `resume`."""
    start_seconds = time.monotonic()
    config = {"out": str(job.out), **job.settings.plain}
    earlier_stages = {name: fact for name, fact in job.freshness.facts.items() if name.startswith("@")}
    record = RunRecord(
        stage=job.stage.name,
        resume_command=resume_command,
        key=job.key,
        made_from=dict(job.freshness.facts),
        config=config,
        inputs=job.input_hashes | earlier_stages,
        seed=config.get("seed", config.get("seeds")),
        versions=versions(),
        git_commit=git_commit(),
        launch=launch_id(),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        resumed=resume,
    )
    claim = claim_folder(job, record, dump_yaml(config), resume, state.record)
    with command_of_other_processes(_stage_command(job)), claim as check_not_removed:
        metrics = as_plain(_call_stage(job))
        check_not_removed()
        seconds = round(time.monotonic() - start_seconds, 3)
        record = replace(record, state="done", wall_seconds=seconds, metrics=metrics)
        record.write(job.out)
    return record


def run_or_wait(job: Job, resume_command: str, resume: bool = False, force: bool = False) -> RunRecord:
    """Run a stage and return its record, as `run_job`, but first wait while another process runs the same job.

    If the other process fails, this process resumes the stage. With `force`, or in a distributed launch, raise
    `FolderTaken` instead of waiting.
    """
    while True:
        try:
            return run_job(job, resume_command, resume, force)
        except FolderTaken:
            if force or launched_world_size() > 1 or not _runs_same_job(job):
                raise
        print(f"{job.out}: another process runs this stage; waiting for it", flush=True)
        try:
            with record_signals():
                _wait_until(lambda: not is_running(job.out))
        except TrainingStopped as stop:
            text = f"{job.out}: {stop} while waiting for another process; to resume: {resume_command}"
            raise TrainingStopped(text) from stop


def _runs_same_job(job: Job) -> bool:
    """Return whether the process that has locked the folder runs the same job; wait until its record has the key."""
    for _ in range(int(_SETTLING_SECONDS / _POLL_SECONDS)):
        record = read_record(job.out)
        if record is not None and record.key == job.key:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def follow_job(job: Job, force: bool = False) -> None:
    """Run a stage in a process of rank > 0: train together with the first process, if the stage trains.

    The first process runs other stages alone, and this process waits for it. Return at once if the stage is done,
    unless `force`, with which the first process runs a finished stage again.
    """
    if folder_state(job).done and not force:
        return

    def has_started() -> bool:
        """Return whether the first process of this launch has locked the folder, perhaps after an earlier run."""
        record = read_record(job.out)
        return record is not None and record.launch == launch_id()

    only_this_stage = launched_by_domainbert()  # a process of torchrun or srun runs the next stages, too
    if only_this_stage:
        end_with_parent()
        StopSignals().install()  # this process must not end alone: the first process would wait for it
    if job.trains:
        problem = f"{job.out}: rank 0 did not start this stage in {_CLAIM_SECONDS / 60:.0f} minutes; see its messages"
        _wait_until(has_started, _CLAIM_SECONDS, problem)
        with command_of_other_processes(_stage_command(job)):
            _call_stage(job, records_signals=not only_this_stage)
    if only_this_stage:
        return

    def is_done() -> bool:
        """Return whether the folder has the result of this launch, or without `force` of any launch."""
        record = read_record(job.out)
        return record is not None and record.done and record.key == job.key and (not force or has_started())

    _wait_until(is_done)


def _call_stage(job: Job, records_signals: bool = True) -> dict[str, Any]:
    """The training of a stage handles signals itself: all processes stop together. With `records_signals`, a signal to
    this process also stops the stage before or after its training."""
    signals = record_signals() if records_signals else nullcontext()
    with report_lost_rank(), signals:
        # `with_facts` takes a function: for a stage called from Python, facts are computed only on demand
        inputs = job.inputs.with_facts(lambda: job.freshness)
        metrics: dict[str, Any] = job.stage.function(out=job.out, settings=job.settings.instance, inputs=inputs)
        raise_if_stopped()  # the stage function may not have noticed a signal
        return metrics


def _wait_until(condition: Callable[[], bool], seconds: float = float("inf"), problem: str = "") -> None:
    """Raise `DomainbertError` with the message `problem` after `seconds`, and `TrainingStopped` after a signal."""
    end = time.monotonic() + seconds
    while not condition():
        raise_if_stopped()
        if time.monotonic() > end:
            raise DomainbertError(problem)
        time.sleep(_POLL_SECONDS)


def _stage_command(job: Job) -> list[str]:
    """Return the arguments of `domainbert` that run the stage with the settings in its folder."""
    return [job.stage.name, "-c", str(job.out / CONFIG), *allow_import_arguments()]


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the main dependencies, without importing them; None if not installed."""
    return {"python": platform.python_version()} | {name: version_of(name) for name in _PACKAGES}


@cache
def version_of(package: str) -> str | None:
    """Return the version of a package without importing it; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def git_commit() -> str | None:
    """Return the git commit of the current folder; None outside a repository or without git."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
