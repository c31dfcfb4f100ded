"""A stage with its settings and output folder, and the state of the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, ErrorsFound
from domainbert.base.fields import BY_INPUT
from domainbert.base.files import RUN, FileHashes
from domainbert.base.freshness import Freshness, foreign_names, format_examples
from domainbert.base.run_record import RunRecord
from domainbert.runner.claim import (
    BEING_WRITTEN,
    DONE,
    NEVER_RUN,
    NOT_RESUMABLE,
    STREAM_ENDED,
    UNSEALED,
    is_running,
    read_state,
)
from domainbert.runner.stage_table import Stage, referred_stages
from domainbert.settings.facts import hashes_of_inputs, stage_facts
from domainbert.settings.reader import Settings
from domainbert.settings.schema import defaults_of, fields_with_metadata
from domainbert.stages.stage import Inputs


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
    hashes: FileHashes = field(compare=False)
    inputs: Inputs = field(default_factory=Inputs, compare=False)
    """Inputs that were opened by the checks before the stage runs."""

    def check_inputs_unchanged(self) -> None:
        """Raise `DomainbertError` if an input file has changed since the job was made: an earlier stage of a recipe may
        have taken hours, and the record would have the hash of the earlier file."""
        hashes = hashes_of_inputs(self.settings, self.hashes)
        streams = set(map(str, self.settings.streams))
        changed = [path for path, digest in self.input_hashes.items() if path not in streams and hashes[path] != digest]
        if changed:
            names = format_examples(changed)
            raise DomainbertError(f"{names} changed after the command began", hint="give the same command again")

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

    def foreign_names(self, out: Path) -> list[str]:
        """Return the files in the folder `out` of a finished stage that the stage did not write, if all of the folder
        is going to be replaced."""
        is_replaced = not (self.done or self.resumable or self.damaged)
        return foreign_names(out, self.record.outputs) if is_replaced and self.record is not None else []


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
    return Job(stage, settings, out, freshness, key, input_hashes, hashes, inputs or Inputs())


def folder_state(job: Job) -> FolderState:
    """Return the state of a job's output folder."""
    state, record = read_state(job.out)
    finished = record if state == DONE else None
    reason = BEING_WRITTEN if finished is None and is_running(job.out) else state  # `claim_folder` raises `FolderTaken`
    if state in (NEVER_RUN, NOT_RESUMABLE, STREAM_ENDED):
        return FolderState(reason, empty=state == NEVER_RUN)
    if state == UNSEALED:
        return FolderState(state, damaged=state)
    if finished is not None and not finished.is_unchanged:
        return FolderState(f"{RUN} has changed", finished, damaged=f"{RUN} has changed")
    if finished is not None and finished.key == job.key:
        return FolderState(f"{state}{_version_suffix(finished)}", finished, done=True)
    return _state_of_earlier_run(job, reason, record.made_from if record is not None else {}, finished)


def _state_of_earlier_run(
    job: Job, reason: str, earlier_facts: Mapping[str, Any], finished: RunRecord | None
) -> FolderState:
    """Return the state of a folder whose run with `earlier_facts` was another job, or has not `finished`."""
    changed_facts = job.freshness.changes(earlier_facts)
    changes = list(changed_facts.values())
    if finished is None and not changes:
        return FolderState(reason, resumable=True)
    removes_outputs = _removes_outputs(job, earlier_facts, is_finished=finished is not None)
    if removes_outputs is not None:  # a part of the output can be kept
        reason = "; ".join([reason, *changes] if finished is None else changes)
        return FolderState(reason, finished, resumable=True, removes_outputs=removes_outputs)
    if finished is not None:
        if len(changed_facts) > 1:  # no part is kept, also those that both lists of parts name
            changed_facts.pop(job.stage.parts or "", None)
        return FolderState(format_examples([*changed_facts.values()]) or "changed", finished)
    if reason == BEING_WRITTEN:
        return FolderState(reason)
    return FolderState(f"{reason}, and changed since", changed="; ".join(changes))


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


@cache
def version_of(package: str) -> str | None:
    """Return the version of a package without importing it; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def raise_data_errors(record: RunRecord, out: Path) -> None:
    """Raise `ErrorsFound` if the metrics of a finished stage list errors in the data."""
    errors = record.metrics.get("errors", [])
    if errors:
        text = errors[0] if len(errors) == 1 else "\n  ".join([f"{len(errors):,} errors", *errors])
        raise ErrorsFound(f"{out}: {text}", errors)
