"""The output folder of a stage while it runs: claimed by one process, and left sealed, resumable or empty."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from domainbert.base.errors import DomainbertError, TrainingFailed, TrainingStopped
from domainbert.base.files import disk_full, read_json, write_json
from domainbert.base.freshness import output_names
from domainbert.base.ranks import launch_id
from domainbert.base.sealed import MANIFEST, read_manifest
from domainbert.training.checkpoint_files import holds_progress, is_progress, remove_progress

if TYPE_CHECKING:
    from domainbert.runner.jobs import Job

RUNNING = "running.lock"
CONFIG = "config.yaml"
STATUS = "status.json"

NEVER_RUN, NOT_FINISHED, INTERRUPTED, DONE = "never run", "not finished", "interrupted", "done"
BEING_WRITTEN = "another process is writing it"
UNSEALED = f"its {MANIFEST} was removed"  # by a user who has edited files that it names
"""State in which a stage's folder was left, in the words of `--dry-run`; what is interrupted can be resumed."""


class FolderTaken(DomainbertError):
    """Another process is writing the folder."""


class FolderFinished(FolderTaken):
    """Another process has finished the folder since the caller looked at it."""


@contextmanager
def claimed(
    job: Job, config: str, go_on: str, resume: bool, seen: Mapping[str, Any] | None
) -> Iterator[Callable[[], None]]:
    """Claim the folder: `running.lock` is locked while this process lives; unless it resumes, the folder is emptied.

    Yields a function that raises `DomainbertError` if the folder has been removed since. `config` are the resolved
    settings as YAML, `go_on` is the command that resumes the stage after an interruption, and `seen` the manifest that
    the caller has seen in the folder.

    Raises:
        DomainbertError: raised while the folder was claimed, in its form for the user. Files that are not useful any
            more are removed.
        FolderTaken: another process has the folder, or (`FolderFinished`) has finished it since.
        TrainingStopped: as it was raised, with the command that resumes.
    """
    created = not job.out.exists()
    job.out.mkdir(parents=True, exist_ok=True)
    facts = {"stage": job.stage.name, "process": os.getpid(), "go_on": go_on, "launch": launch_id()}
    facts |= {"key": job.key, "made_from": job.freshness.facts}

    def write_status(state: str, reason: str = "") -> None:
        write_json(job.out / STATUS, {"state": state, "reason": reason, **facts})

    with open(job.out / RUNNING, "a", encoding="utf-8") as marker, _open_folder(job.out) as descriptor:
        _lock(marker, job)
        _check_as_seen(marker, job, seen)
        check = partial(_check_there, job, descriptor)
        try:
            if not resume:
                _clear(job.out)
            for left in list(job.out.rglob(".*.tmp")):  # by a process that was killed
                left.unlink()
            (job.out / CONFIG).write_text(config, encoding="utf-8")
            write_status("running")
            (job.out / MANIFEST).unlink(missing_ok=True)  # of a run with other parts: its files may be removed soon
            yield check
        except TrainingStopped as stop:
            with suppress(OSError):
                write_status("stopped", str(stop))
            raise TrainingStopped(f"{job.out}: {stop}; to resume: {go_on}") from stop
        except Exception as error:
            check()
            told = _told_of_room(job, error, go_on)
            lasting = isinstance(told, DomainbertError) and not isinstance(told, TrainingFailed)
            if lasting and not holds_progress(job.out):  # nothing in the folder is useful any more
                _clear(job.out)
                (job.out / RUNNING).unlink(missing_ok=True)
                if created:
                    job.out.rmdir()
            else:
                with suppress(OSError):  # the first error counts
                    write_status("failed", str(told) if isinstance(told, DomainbertError) else repr(told))
            if told is error:
                raise
            raise told from error
        _finish(job)


@contextmanager
def _open_folder(out: Path) -> Iterator[int]:
    """Open a descriptor of a folder: while it is open, no other folder gets the inode."""
    descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_there(job: Job, descriptor: int) -> None:
    try:
        same = os.path.samestat(os.stat(job.out), os.fstat(descriptor))
    except OSError:
        same = False
    if not same or not any((job.out / name).exists() for name in (RUNNING, CONFIG)):
        raise DomainbertError(
            f"{job.out}: was removed while stage {job.stage.name} wrote it; expected the folder to stay: remove what "
            "is left of it, and run the stage again"
        )


def _told_of_room(job: Job, error: Exception, go_on: str) -> Exception:
    """The error; for a full disk, one with the space that was needed, after incomplete files have been removed."""
    reason = "" if isinstance(error, DomainbertError) else disk_full(error)
    if not reason:
        return error
    path, free = getattr(error, "filename", None) or job.out, shutil.disk_usage(job.out).free
    written = sum(file.stat().st_size for file in job.out.rglob("*") if file.is_file())
    kept = "nothing of it is kept: make room, and run it again"
    if holds_progress(job.out):
        kept = f"what it has done is kept: make room; to resume: {go_on}"
        for name in list(output_names(job.out)):  # of what is incomplete
            if not is_progress(job.out, name):
                (job.out / name).unlink()
    return DomainbertError(
        f"{path}: {reason}: stage {job.stage.name} had written {written:,} bytes and needed more, {free:,} were free; "
        f"{kept}"
    )


def _finish(job: Job) -> None:
    """Clean up after the manifest was written: this may fail without harm."""
    remove_progress(job.out)
    try:
        write_json(job.out / STATUS, {"state": "done", "stage": job.stage.name})
    except OSError:
        (job.out / STATUS).unlink(missing_ok=True)
    (job.out / RUNNING).unlink(missing_ok=True)


def is_running(out: Path) -> bool:
    """Whether a process, of this machine or of another one that shares the disk, is writing a folder."""
    try:
        with open(out / RUNNING, encoding="utf-8") as marker:  # read only: it may be another user's
            fcntl.lockf(marker, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _lock(marker: TextIO, job: Job) -> None:
    """Lock until this process ends. With flock, a loader's worker would keep the lock after its parent was killed."""
    try:
        fcntl.lockf(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FolderTaken(f"{job.out}: another process is writing this folder; wait for it, or end it") from error


def _check_as_seen(marker: TextIO, job: Job, seen: Mapping[str, Any] | None) -> None:
    """Raise `FolderFinished` where another process has finished the folder before the lock was had: it removes the file
    that it has locked, and what it made must not be cleared."""
    try:
        is_there = os.path.samestat(os.fstat(marker.fileno()), os.stat(job.out / RUNNING))
    except FileNotFoundError:
        is_there = False
    if is_there and read_manifest(job.out) == seen:
        return
    if is_there:
        (job.out / RUNNING).unlink()
    raise FolderFinished(f"{job.out}: another process has just finished this folder; expected nobody else to write it")


def _clear(folder: Path) -> None:
    (folder / MANIFEST).unlink(missing_ok=True)  # first: while it exists, the files that it names have to exist
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != RUNNING:
            path.unlink()


def read_status(out: Path) -> dict[str, Any]:
    """Contents of `status.json`; nothing, if there is none."""
    try:
        return dict(read_json(out / STATUS, "the status of a stage"))
    except DomainbertError:
        return {}


def left_in(out: Path) -> tuple[str, dict[str, Any] | None]:
    """The state in which the last run of a stage left its folder, in one of the words above, and the manifest if
    it is done.

    Raises:
        DomainbertError: it holds files that no stage has written, or a manifest that cannot be read.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return NEVER_RUN, None
    if not out.is_dir():
        raise DomainbertError(f"{out}: is a file; expected a folder to write to, or none yet")
    if (manifest := read_manifest(out)) is not None:
        return DONE, manifest
    if (out / RUNNING).exists():  # with a manifest it was finished, and nothing was begun since
        return INTERRUPTED if holds_progress(out) else NOT_FINISHED, None
    if (out / CONFIG).is_file() and read_status(out).get("state") == "done":
        return UNSEALED, None
    raise DomainbertError(f"{out}: holds files that domainbert did not write; expected an empty folder, or none yet")
