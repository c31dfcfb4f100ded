"""Runs one stage: its output folder is claimed, filled and sealed, or left so that the stage can resume.

running.lock     while the stage runs, and after it was interrupted; locked by its process
config.yaml      the resolved settings
status.json      what happened last, how to resume, and how the stage was started
manifest.json    once the stage is done
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from domainbert.base.choices import allow_import_words, as_plain
from domainbert.base.errors import DomainbertError, ErrorsFound, TrainingStopped
from domainbert.base.freshness import Freshness, in_short
from domainbert.base.hashes import FileHashes
from domainbert.base.marks import BY_INPUT
from domainbert.base.ranks import launch_id, launched_here, started_together
from domainbert.base.sealed import MANIFEST, damages, made_from, read_manifest
from domainbert.base.signals import StopSignals, noting_signals, stop_if_asked
from domainbert.runner.claim import (
    BEING_WRITTEN,
    CONFIG,
    NEVER_RUN,
    NOT_FINISHED,
    UNSEALED,
    FolderFinished,
    FolderTaken,
    claimed,
    is_running,
    left_in,
    read_status,
)
from domainbert.runner.manifest import git_commit, referred_stages, versions
from domainbert.runner.stage_table import Stage
from domainbert.settings.facts import hashes_of_inputs, stage_facts
from domainbert.settings.reader import Settings
from domainbert.settings.schema import defaults_of, marked
from domainbert.settings.yaml_files import dump_yaml
from domainbert.stages.inputs import Inputs
from domainbert.training.processes import command_of_other_processes, end_with_parent, told_if_lost

_POLL_SECONDS = 0.2
_SETTLING_SECONDS = 10.0  # in which a process that has taken a folder says what it runs there
_CLAIM_SECONDS = 600.0  # the first process reads the same inputs before it takes the folder


@dataclass(frozen=True)
class Job:
    """A stage with checked arguments and the folder it writes."""

    stage: Stage
    settings: Settings
    out: Path
    freshness: Freshness
    key: str
    """Equal keys give equal results. A folder that is up to date keeps its key, perhaps of an earlier version."""
    input_hashes: Mapping[str, str]
    inputs: Inputs = field(default_factory=Inputs, compare=False)
    """Holds the inputs that the check of the stage has opened."""

    @property
    def trains(self) -> bool:
        """Whether all processes of a launch run the stage; other stages are run by the first process alone."""
        return "trainer" in defaults_of(self.stage.settings)


@dataclass(frozen=True)
class FolderState:
    """Contents of a job's output folder, and whether they are up to date."""

    done: bool
    reason: str
    """The reason why the stage has to run; `done` if it has not."""
    empty: bool = False
    manifest: dict[str, Any] | None = None
    resumable: bool = False
    """The folder can be resumed: an interrupted run of the same job wrote it, or one that differs only in parts."""
    changed: str = ""
    """An interrupted run could be resumed, but these settings or inputs have changed since."""
    damaged: str = ""
    """The stage was done, but these of its files are missing or have changed since."""
    drops: bool = False
    """Resuming removes parts (seeds) that are in the folder but not asked for any more, or what was made of input files
    as they were before."""


def make_job(
    stage: Stage,
    settings: Settings,
    out: Path,
    hashes: FileHashes,
    keys: Mapping[str, str],
    inputs: Inputs | None = None,
    anew: bool = False,
) -> Job:
    """Return the job of a stage, with the key of what its folder holds if that is up to date, unless it is made anew.

    `keys` are the keys of the earlier stages of the recipe; those that the settings refer to count.
    """
    input_hashes = hashes_of_inputs(settings, hashes)
    referred = {name: keys[name] for name in referred_stages(settings)}
    freshness = stage_facts(stage.name, stage.settings, settings, input_hashes, referred)
    known = None if anew else _record_in(out)
    facts = made_from(known or {})
    key = known.get("key") if known and facts and not freshness.changes(facts) else None
    return Job(stage, settings, out, freshness, key or freshness.key, input_hashes, inputs or Inputs())


def _record_in(out: Path) -> dict[str, Any] | None:
    """The manifest of a folder, or the status of a run that can resume; None if there is none that can be read."""
    try:
        left, manifest = left_in(out)
    except DomainbertError:
        return None
    return None if left == NOT_FINISHED else (manifest or read_status(out))


def folder_state(job: Job) -> FolderState:
    """Look at the output folder of a job.

    Raises:
        DomainbertError: it holds files that no stage has written.
    """
    left, manifest = left_in(job.out)
    if left in (UNSEALED, NEVER_RUN, NOT_FINISHED):
        return FolderState(False, left, empty=left == NEVER_RUN, damaged=left if left == UNSEALED else "")
    if manifest is not None and manifest["key"] == job.key:
        return FolderState(True, f"{left}{_by_another_version(manifest)}", manifest=manifest)
    before = made_from(manifest or read_status(job.out)) or {}
    changes, interrupted = job.freshness.changes(before), manifest is None
    if interrupted and not changes:
        return FolderState(False, left, resumable=True)
    if (drops := _drops(job, before, interrupted)) is not None:
        reason = "; ".join([*([left] if interrupted else []), *changes.values()])
        return FolderState(False, reason, manifest=manifest, resumable=True, drops=drops)
    if interrupted and is_running(job.out):  # nothing was interrupted: it is refused when the folder is claimed
        return FolderState(False, BEING_WRITTEN)
    if interrupted:
        return FolderState(False, f"{left}, and changed since", changed="; ".join(changes.values()))
    return FolderState(False, job.freshness.reason(before) or "changed", manifest=manifest)


def _drops(job: Job, before: Mapping[str, Any], interrupted: bool) -> bool | None:
    """Whether resuming drops something in the folder (`FolderState.drops`); None where nothing of it can be kept.

    It can where nothing has changed but the parts (seeds), or the input files of a stage that makes its output file by
    file.
    """
    parts = job.stage.parts or ""
    if job.freshness.changes(before).keys() == {parts} and isinstance(before.get(parts), list):
        return not set(before[parts]) <= set(job.freshness.facts[parts])
    by_input = any(job.settings.plain[name] is not None for name in marked(job.stage.settings, BY_INPUT))
    return not interrupted if by_input and job.freshness.only_input_contents(before) else None


def compared_state(job: Job, hashes: FileHashes, thorough: bool = False) -> FolderState:
    """As `folder_state`, but a folder with a missing or changed file is neither done nor resumable.

    `hashes` are for files that a quick look does not clear; with `thorough`, every file is hashed.
    """
    state = folder_state(job)
    if state.manifest is None or not (state.done or state.resumable):
        return state
    found = in_short(damages(job.out, state.manifest, hashes, thorough=thorough))
    if found:
        return FolderState(False, found, manifest=state.manifest, damaged=found)
    if thorough and "outputs" not in state.manifest:
        return replace(state, reason="done; made before outputs were recorded, so they are not verified")
    return state


def _by_another_version(manifest: Mapping[str, Any]) -> str:
    before, now = manifest.get("versions", {}).get("domainbert"), versions()["domainbert"]
    return f", by domainbert {before}" if before not in (None, now) else ""


def refuse_errors(manifest: Mapping[str, Any], out: Path) -> None:
    """`ErrorsFound` if a finished stage says in its metrics that it found errors: one of this run, or of one before."""
    found = (manifest["metrics"] or {}).get("errors", [])
    if found:
        told = found[0] if len(found) == 1 else "\n  ".join([f"{len(found):,} errors", *found])
        raise ErrorsFound(f"{out}: {told}", found)


def run_job(job: Job, go_on: str, resume: bool = False, force: bool = False) -> dict[str, Any]:
    """Run a stage into its folder, replacing earlier stage output, and return the manifest.

    `go_on` is the command that resumes it after an interruption; with `resume`, the files of an interrupted run of the
    same job are kept, and it is resumed. Unless it is forced, a stage that another process has finished since the
    caller looked stays as it is, and one that it left interrupted is resumed.

    Raises:
        DomainbertError: from the stage, or the disk is full; its files are removed, unless it can be resumed. Or
            the folder was removed.
        FolderTaken: another process is writing the folder.
        TrainingStopped: a signal ended it; what it has done so far is kept.
    """
    while True:
        state = folder_state(job)
        if state.done and state.manifest is not None and not force:
            return state.manifest
        try:
            return _run_seen(job, state, go_on, resume or (state.resumable and state.manifest is None and not force))
        except FolderFinished:
            if force:
                raise


def _run_seen(job: Job, state: FolderState, go_on: str, resume: bool) -> dict[str, Any]:
    """As `run_job`, of a folder in this state, which may be cleared."""
    started, clock = datetime.now(timezone.utc).isoformat(timespec="seconds"), time.monotonic()
    config = {"out": str(job.out), **job.settings.plain}
    claim = claimed(job, dump_yaml(config), go_on, resume, state.manifest)
    with command_of_other_processes(_command(job)), claim as check_there:
        metrics = _call(job)
        check_there()
        facts = job.freshness.facts
        manifest = {
            "stage": job.stage.name,
            "key": job.key,
            "config": config,
            "inputs": {**job.input_hashes, **{name: facts[name] for name in facts if name.startswith("@")}},
            "versions": versions(),
            "seed": config.get("seed", config.get("seeds")),
            "git_commit": git_commit(),
            "started": started,
            "resumed": resume,
            "wall_seconds": round(time.monotonic() - clock, 3),
            "metrics": as_plain(metrics),
        }
        job.freshness.record(job.out / MANIFEST, manifest)
    return manifest


def run_in_turn(job: Job, go_on: str, resume: bool = False, force: bool = False) -> dict[str, Any]:
    """As `run_job`, but where another process runs the same job, wait until it ends, and take what it has made; if it
    has not come to its end, go on with it.

    Only a process that works alone waits, and does not wait to make a stage again by force.
    """
    while True:
        try:
            return run_job(job, go_on, resume, force)
        except FolderTaken:
            if force or started_together() > 1 or not _begun_elsewhere(job):
                raise
        print(f"{job.out}: another process runs this stage; waiting for it", flush=True)
        try:
            with noting_signals():
                _wait(lambda: not is_running(job.out), job)
        except TrainingStopped as stop:
            raise TrainingStopped(f"{job.out}: {stop} while waiting for it; to resume: {go_on}") from stop


def _begun_elsewhere(job: Job) -> bool:
    """Whether the process that has the folder runs the same job: it says so once it has cleared the folder."""
    for _ in range(int(_SETTLING_SECONDS / _POLL_SECONDS)):
        if read_status(job.out).get("key") == job.key:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def follow_job(job: Job, force: bool = False) -> None:
    """Run a stage in a process that is not the first: train with the first, or wait for what it makes alone.

    With `force`, the first process replaces a finished stage.
    """
    if folder_state(job).done and not force:
        return
    nothing_follows = launched_here()
    if nothing_follows:
        end_with_parent()
        StopSignals().install()  # it must not end alone: the first process would wait for it
    if job.trains:
        _wait(lambda: read_status(job.out).get("launch") == launch_id(), job, _CLAIM_SECONDS)
        with command_of_other_processes(_command(job)):
            _call(job, stops_alone=not nothing_follows)
    if not nothing_follows:
        _wait(lambda: (read_manifest(job.out) or {}).get("key") == job.key, job)


def _call(job: Job, stops_alone: bool = True) -> dict[str, Any]:
    with told_if_lost(), noting_signals() if stops_alone else nullcontext():
        inputs = job.inputs.of_stage(lambda: job.freshness)
        metrics: dict[str, Any] = job.stage.function(out=job.out, settings=job.settings.instance, inputs=inputs)
        stop_if_asked()
        return metrics


def _wait(condition: Callable[[], bool], job: Job, seconds: float = float("inf")) -> None:
    end = time.monotonic() + seconds
    while not condition():
        stop_if_asked()
        if time.monotonic() > end:
            raise DomainbertError(f"{job.out}: the first process has not begun to write this folder; see its messages")
        time.sleep(_POLL_SECONDS)


def _command(job: Job) -> list[str]:
    return [job.stage.name, "-c", str(job.out / CONFIG), *allow_import_words()]
