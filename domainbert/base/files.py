"""Reads and writes small files; each is written completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.redact import redact


def disk_full_message(error: BaseException) -> str:
    """Return the system's message if an error, perhaps wrapped by a library, says that the disk is full or a file may
    not grow (`ulimit -f`); otherwise an empty string."""
    reasons = map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    return next((reason for reason in reasons if reason in str(error)), "")


@contextmanager
def report_full_disk(folder: Path) -> Iterator[None]:
    """Context manager for writing files below a folder: raise `DomainbertError` in place of an error "disk full"."""
    try:
        yield
    except OSError as error:
        reason = disk_full_message(error)
        if not reason:
            raise
        free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
        raise DomainbertError(f"{error.filename or folder}: {reason}: {free:,} bytes are free") from error


# by process id and folder: a forked process would inherit a lock that is held
_thread_locks: dict[tuple[int, Path], threading.Lock] = {}


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Context manager that holds the lock of a folder: one thread of one process has it among all machines that share
    the folder. The folder is created if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    thread_lock = _thread_locks.setdefault((os.getpid(), folder), threading.Lock())
    with thread_lock, open(folder / ".lock", "a", encoding="utf-8") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)  # ends with this process; a lock of flock would pass to a data loader's worker
        yield


def read_json(path: Path, expected: str, kind: type = dict) -> Any:
    """Return the value of a JSON file, which must be of type `kind` (`object`: any type).

    Raises:
        DomainbertError: the file cannot be read, is not valid JSON, or has a value of another type; the message ends
            with `expected`, such as "a manifest of domainbert".
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DomainbertError(f"{path}: cannot be read ({error.strerror}); expected {expected}") from error
    except (ValueError, RecursionError) as error:
        raise DomainbertError(f"{path}: not valid JSON ({error}); expected {expected}") from error
    if not isinstance(value, kind):
        raise DomainbertError(f"{path}: a JSON {type(value).__name__}; expected {expected}")
    return value


def sync_files(folder: Path) -> None:
    """Flush all files below a folder to disk (fsync), so that they survive a crash of the machine."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def write_json(path: Path, value: Any, unredacted: bool = False) -> None:
    """Write a JSON file completely or not at all; secrets are removed (see `redact`) unless `unredacted`."""
    write_text(path, json.dumps(value if unredacted else redact(value), indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with its line ends unchanged, completely or not at all."""
    # processes of several machines may write the same file
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")  # hidden: no output if killed
    try:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:  # later runs use other names, so nothing would delete the temporary file
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = str(path)
        raise
