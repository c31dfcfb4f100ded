"""Lock the output folder of a stage while it runs; afterwards the folder is finished, resumable or empty."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from domainbert.base.errors import DomainbertError, TrainingFailed, TrainingStopped
from domainbert.base.files import LOCK_HELD_ERRORS, RUN, disk_full_advice, disk_full_message, lock_file, write_text
from domainbert.base.freshness import output_names
from domainbert.base.process import record_stop
from domainbert.base.run_record import RunRecord, read_record
from domainbert.training.checkpoint_files import holds_progress, is_finished_output, remove_checkpoints

if TYPE_CHECKING:
    from domainbert.runner.job_state import Job

LOCK = "running.lock"
CONFIG = "config.yaml"
RECIPE = "recipe.json"
"""File in the folder of a run, not of a stage: all stages of a recipe, in order; the command; and the stages that
`--force` named and that have not run since."""

NEVER_RUN, NOT_RESUMABLE, INTERRUPTED, DONE = "never run", "not finished", "interrupted", "done"
BEING_WRITTEN = "another process is writing it"
UNSEALED = f"its {RUN} was removed"  # by a user who edited files that the record lists
STREAM_ENDED = "ended while it read a stream"  # which cannot be read again: its output is replaced only by --force
"""States of a stage's folder, as `--dry-run` prints them. Only an interrupted stage can be resumed."""

_STREAM_IS_KEPT = "its output is kept, and a stream cannot be resumed"
_HEAD = "# domainbert "  # first words of a `CONFIG`, before the name of the stage


class FolderTaken(DomainbertError):
    """Raised when another process is writing the folder."""


class FolderFinished(FolderTaken):
    """Raised when another process finished the folder after the caller read its state."""


@contextmanager
def claim_folder(
    job: Job, record: RunRecord, config: str, resume: bool, expected: RunRecord | None
) -> Iterator[Callable[[], None]]:
    """Context manager that locks the output folder of a job while the stage writes it.

    The yielded function raises `DomainbertError` if the folder was removed. When the stage has succeeded, the context
    manager removes the lock and the checkpoints.

    Args:
        record: written when the stage starts, and with another state when it stops or fails.
        config: YAML of the resolved settings, written to the folder.
        resume: whether to keep the files in the folder; otherwise the folder is emptied first.
        expected: the record of a finished stage that the caller has read in the folder; None if there was none.

    Raises:
        DomainbertError: an error of the stage, with a message for the user. Files that cannot be used any more are
            removed.
        FolderTaken: another process is writing the folder, or (`FolderFinished`) has finished it.
        TrainingStopped: a signal or Ctrl-C has stopped the stage; with the command that resumes it.
    """
    is_new = not job.out.exists()
    job.out.mkdir(parents=True, exist_ok=True)

    def write_ended(state: str, reason: str) -> None:
        with suppress(OSError):  # the caller raises the error of the stage, not an error of writing the record
            replace(record, state=state, reason=reason).write(job.out)

    def write_stopped(reason: str) -> str:
        write_ended("stopped", reason)
        advice = _STREAM_IS_KEPT if holds_stream_output(job.out, record) else f"to resume: {record.resume_command}"
        return f"{job.out}: {reason}; {advice}"

    with open(job.out / LOCK, "a", encoding="utf-8") as marker, ExitStack() as stack:
        descriptor = os.open(job.out, os.O_RDONLY | os.O_DIRECTORY)  # open: no new folder can get the same inode
        stack.callback(os.close, descriptor)
        _lock(marker, job)
        _check_not_finished_meanwhile(marker, job, expected)
        check_not_removed = partial(_check_not_removed, job, descriptor)
        try:
            if not resume:
                _clear(job.out)
            for temporary in list(job.out.rglob(".*.tmp")):  # left by a process that was killed
                temporary.unlink()
            write_text(job.out / CONFIG, f"{_HEAD}{job.stage.name}\n{config}")
            record.write(job.out)  # replaces the record of a finished run, whose files may be removed soon
            record_stop.append(write_stopped)
            stack.callback(record_stop.remove, write_stopped)
            yield check_not_removed
        except (TrainingStopped, KeyboardInterrupt) as stop:
            raise TrainingStopped(write_stopped(str(stop) or "stopped by SIGINT")) from stop  # Ctrl-C has no text
        except Exception as error:  # record the failure, and keep only what a resumed run or the user can use
            check_not_removed()
            disk_full = _disk_full_error(job, error, record)
            if disk_full is not None and holds_progress(job.out):
                _remove_incomplete_outputs(job.out)  # frees space for the run that resumes
            _keep_or_clear(job.out, disk_full or error, write_ended, is_new)
            if disk_full is not None:
                raise disk_full from error
            raise
        remove_checkpoints(job.out)
        (job.out / LOCK).unlink(missing_ok=True)


def _keep_or_clear(out: Path, error: Exception, write_ended: Callable[[str, str], None], is_new: bool) -> None:
    """Record the error of a stage, or clear the folder (remove it if `is_new`) if no file can be used."""
    # wrong settings or data: nothing can be resumed; after any other error, the files may show its cause
    is_permanent = isinstance(error, DomainbertError) and not isinstance(error, TrainingFailed)
    if not is_permanent or holds_progress(out):
        write_ended("failed", str(error) if isinstance(error, DomainbertError) else repr(error))
        return
    _clear(out)
    (out / LOCK).unlink(missing_ok=True)
    if is_new:
        out.rmdir()


def _check_not_removed(job: Job, descriptor: int) -> None:
    """Raise `DomainbertError` if the output folder, open as `descriptor`, was removed, replaced or emptied."""
    try:
        is_same_folder = os.path.samestat(os.stat(job.out), os.fstat(descriptor))
    except OSError:
        is_same_folder = False
    is_emptied = not any((job.out / name).exists() for name in (LOCK, RUN))  # a running stage has both files
    if not is_same_folder or is_emptied:
        raise DomainbertError(
            f"another process removed files while stage {job.stage.name} was writing this folder",
            where=job.out,
            hint="delete the folder if it still exists, and run the stage again",
        )


def _disk_full_error(job: Job, error: Exception, record: RunRecord) -> DomainbertError | None:
    """Return None if the cause of `error` is not a full disk; `TrainingFailed` if the output of a stream is kept."""
    reason = "" if isinstance(error, DomainbertError) else disk_full_message(error)  # or has its own advice
    if not reason:
        return None
    written = sum(file.stat().st_size for file in job.out.rglob("*") if file.is_file())
    numbers = f"{written:,} bytes and needed more; {shutil.disk_usage(job.out).free:,} were free"
    advice = f"no output was kept; {disk_full_advice(reason)} and run the stage again"
    keeps_stream = holds_stream_output(job.out, record)
    if keeps_stream:
        advice = f"the output until then is kept; {disk_full_advice(reason)}, and use another --out for the rest"
    elif holds_progress(job.out):
        advice = f"its progress was kept; {disk_full_advice(reason)}, and resume with: {record.resume_command}"
    return (TrainingFailed if keeps_stream else DomainbertError)(
        f"{reason} (stage {job.stage.name} had written {numbers})",
        file=getattr(error, "filename", None) or job.out,
        hint=advice,
    )


def _remove_incomplete_outputs(out: Path) -> None:
    for name in list(output_names(out)):  # a list: the loop deletes files
        if not is_finished_output(out, name):
            (out / name).unlink()


def is_running(out: Path) -> bool:
    """Return whether a process, on this machine or on another one that shares the disk, is writing the folder."""
    try:
        with open(out / LOCK, encoding="utf-8") as marker:  # read-only: another user may own the file
            fcntl.lockf(marker, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # no lock file, or a file system without locks, unless another process holds the lock
        return error.errno in LOCK_HELD_ERRORS
    return False


def _lock(marker: TextIO, job: Job) -> None:
    """Lock the file until this process ends; raise `FolderTaken` if another process holds the lock for 0.2 s, longer
    than `is_running` does."""
    deadline = time.monotonic() + 0.2
    while True:
        try:
            lock_file(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:  # another process holds the lock
            if time.monotonic() > deadline:
                raise FolderTaken(
                    "another process is writing this folder", file=job.out, hint="wait for it, or end it"
                ) from error
        time.sleep(0.02)


def _check_not_finished_meanwhile(marker: TextIO, job: Job, expected: RunRecord | None) -> None:
    """Raise `FolderFinished` if another process finished the folder before this process locked it.

    The caller would delete the output of the other process. `marker` is the lock file, which this process has opened
    and locked; `expected` is the record of a finished stage that this process read before (None if there was none). A
    process that finishes writes the record and deletes the lock file, so there are two cases:

    1. This process opened the lock file before the other process deleted it: `marker` is the deleted file.
    2. This process opened it afterwards, and so created a new lock file: the record has changed.
    """
    try:
        is_current_file = os.path.samestat(os.fstat(marker.fileno()), os.stat(job.out / LOCK))
    except FileNotFoundError:
        is_current_file = False
    record = read_record(job.out)
    finished = record if record is not None and record.done else None
    if is_current_file and finished == expected:
        return
    if is_current_file:  # case 2: this process has created the lock file
        (job.out / LOCK).unlink()
    raise FolderFinished(
        "another process has just finished this folder", file=job.out, hint="run again to replace its output"
    )


def _clear(folder: Path) -> None:
    """Keep `running.lock`, which this process has locked."""
    (folder / RUN).unlink(missing_ok=True)  # first: while it exists, the files that it lists have to exist
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def holds_stream_output(out: Path, record: RunRecord) -> bool:
    """Return whether the folder has output of a stage that reads a stream, which no other run can write again."""
    return record.reads_stream and any((out / name).stat().st_size for name in output_names(out))


def stage_of_config(out: Path) -> str:
    """Return the name of the stage that wrote the `CONFIG` in a folder; "" without such a file."""
    try:
        with open(out / CONFIG, encoding="utf-8", errors="replace") as file:
            line = file.readline()
    except OSError:
        return ""
    return line.removeprefix(_HEAD).strip() if line.startswith(_HEAD) else ""


def read_state(out: Path) -> tuple[str, RunRecord | None]:
    """Return the state of a stage's folder (`NEVER_RUN`, ..., `UNSEALED`), and its record if there is one.

    Raises:
        DomainbertError: the folder holds files that no stage has written, or a record that cannot be read.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return NEVER_RUN, None
    if not out.is_dir():
        raise DomainbertError("is a file", where=out, expected="a folder to write to, or a path that does not exist")
    record, is_locked = read_record(out), (out / LOCK).exists()
    if record is None and not is_locked:
        record = read_record(out)  # again, because the stage may have finished since the first look
    if record is not None and record.done:
        return DONE, record
    if record is not None and holds_stream_output(out, record):
        return STREAM_ENDED, record
    if record is not None or is_locked:
        return INTERRUPTED if holds_progress(out) else NOT_RESUMABLE, record
    if stage_of_config(out) and not (out / RUN).exists():  # a stage writes both files
        return UNSEALED, None
    found = "is the folder of a recipe" if (out / RECIPE).is_file() else "holds files that domainbert did not write"
    raise DomainbertError(found, where=out, expected="an empty or a new folder, or the folder of a stage")
