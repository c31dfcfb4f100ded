"""Run one stage: lock its output folder, fill it and record the results, or leave it so that the stage can resume.

running.lock     exists while the stage runs and after an interruption; its process holds the lock
config.yaml      the resolved settings
run.json         the record of the stage, see `base/run_record.py`
"""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from domainbert.base.choices import allow_import_arguments, as_plain
from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.base.process import (
    StopSignals,
    launch_id,
    launched_by_domainbert,
    launched_world_size,
    raise_if_stopped,
    record_signals,
)
from domainbert.base.run_record import RunRecord, read_record
from domainbert.runner.claim import CONFIG, FolderFinished, FolderTaken, claim_folder, is_running
from domainbert.runner.job_state import FolderState, Job, folder_state, version_of
from domainbert.settings.yaml_files import dump_yaml
from domainbert.training.processes import command_of_other_processes, end_with_parent, report_lost_rank

_PACKAGES = ("domainbert", "torch", "lightning", "tokenizers", "datasets", "numpy")  # versions in the record
_POLL_SECONDS = 0.2
_SETTLING_SECONDS = 10.0  # a process that has locked a folder writes its record within this time
_CLAIM_SECONDS = 600.0  # the first process reads the same inputs before it locks the folder


def run_job(job: Job, resume_command: str, resume: bool = False, force: bool = False) -> RunRecord:
    """Run a stage, replace its earlier output, and return its record.

    `resume_command` resumes the stage after an interruption. With `resume`, the files of an interrupted run of the same
    job are kept and the run is resumed. Another process may have finished or interrupted the stage since the caller
    read its state: without `force`, a finished stage is kept and an interrupted one is resumed.

    Raises:
        DomainbertError: the stage failed or the disk is full (output files are removed unless the stage can be
            resumed), or the folder was removed.
        FolderTaken: another process is writing the folder, or has just finished another job in it.
        TrainingStopped: a signal stopped the stage; its progress is kept.
    """
    state = folder_state(job)
    if state.done and state.record is not None and not force:
        return state.record
    interrupted = state.resumable and state.record is None
    try:
        with command_of_other_processes(_stage_command(job)):  # the record has the launch that these processes get
            return _run_once(job, state, resume_command, resume or (interrupted and not force))
    except FolderFinished:  # another process has finished the folder since `folder_state`: its output is kept
        state = folder_state(job)
        if force or state.record is None or not state.done:  # not the output of this job
            raise
        return state.record


def _run_once(job: Job, state: FolderState, resume_command: str, resume: bool) -> RunRecord:
    """Lock the folder, empty it unless `resume`, and run the stage in it."""
    start_seconds = time.monotonic()
    job.check_inputs_unchanged()
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
    with claim_folder(job, record, dump_yaml(config), resume, state.record) as check_not_removed:
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
        except FolderFinished:  # nothing runs that this process could wait for
            raise
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


def git_commit() -> str | None:
    """Return the git commit of the current folder; None outside a repository or without git."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
