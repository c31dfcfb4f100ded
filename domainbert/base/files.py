"""Read, write and hash files. A file is written completely or not at all; hashes of files, folders and plain values
decide whether a stage has to run again."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from domainbert.base.errors import DomainbertError
from domainbert.base.process import raise_if_stopped
from domainbert.base.redact import redact

LOCK_HELD_ERRORS = (errno.EACCES, errno.EAGAIN)  # of `lockf`, if another process holds the lock


def disk_full_message(error: BaseException) -> str:
    """Return the system's message if an error, perhaps wrapped by a library, says that the disk is full or a file may
    not grow (`ulimit -f`); otherwise an empty string."""
    reasons = map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    return next((reason for reason in reasons if reason in str(error)), "")


def disk_full_advice(reason: str) -> str:
    """Return what the user has to do for a reason of `disk_full_message`."""
    return "raise the file size limit (ulimit -f)" if reason == os.strerror(errno.EFBIG) else "free some space"


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
        raise DomainbertError(
            f"{reason}: {free:,} bytes are free", file=error.filename or folder, hint=disk_full_advice(reason)
        ) from error


def lock_file(file: TextIO, operation: int) -> None:
    """Lock a file, as `fcntl.lockf` does, until this process ends; raise `DomainbertError` if its file system has no
    locks.

    `lockf`, not `flock`: workers of data loaders would inherit a lock of `flock`, and keep it after this process died.
    """
    try:
        fcntl.lockf(file, operation)
    except OSError as error:
        if error.errno in LOCK_HELD_ERRORS:
            raise
        code = errno.errorcode.get(error.errno or 0, "")
        raise DomainbertError(
            f"this file system has no locks ({code}: {error.strerror})",
            file=Path(file.name).parent,
            hint="use a folder on another file system",
        ) from error


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
        lock_file(file, fcntl.LOCK_EX)
        yield


def read_json(path: Path, expected: str, kind: type = dict) -> Any:
    """Return the value of a JSON file, which must be of type `kind` (`object`: any type).

    Raises:
        DomainbertError: the file cannot be read, is not valid JSON, or has a value of another type; the message ends
            with `expected`, such as "the record of a stage".
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DomainbertError(f"cannot be read ({error.strerror})", file=path, expected=expected) from error
    except (ValueError, RecursionError) as error:
        raise DomainbertError(f"not valid JSON ({error})", file=path, expected=expected) from error
    if not isinstance(value, kind):
        raise DomainbertError(file=path, found=f"a JSON {type(value).__name__}", expected=expected)
    return value


def sync_files(folder: Path) -> None:
    """Flush a folder, with all files and folders below it, to disk (fsync): they survive a crash of the machine."""
    for path in (*filter(Path.is_file, folder.rglob("*")), *filter(Path.is_dir, folder.rglob("*")), folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


@contextmanager
def replaced_files(folder: Path, needed: str) -> Iterator[Path]:
    """Context manager for writing files that belong together: yield an empty folder, whose files replace the files of
    `folder` at the end. Other files in `folder` are kept.

    No reader opens `folder` without the file `needed`, which is removed first and replaced last: after a kill, the
    folder opens with the old files or the new files, or not at all.
    """
    new = folder / ".unfinished"
    shutil.rmtree(new, ignore_errors=True)  # left by a process that was killed
    new.mkdir(parents=True)
    try:
        yield new
        sync_files(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    (folder / needed).unlink(missing_ok=True)
    for path in sorted(new.iterdir(), key=lambda path: path.name == needed):
        path.replace(folder / path.name)
    new.rmdir()


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


_BLOCK_BYTES = 1 << 20
_ENTRY_LENGTH = 5  # of an entry of the cache: the 4 numbers of a quick look, and a hash; other entries are ignored
RUN = "run.json"
"""Name of the file with the record of a stage, see `run_record`."""
_NOT_HASHED = {RUN, "README.md"}  # describe the run and the model; no stage reads them
RUN_FILES = {*_NOT_HASHED, "running.lock", "config.yaml", "training.json", "report.html"}
"""Files in a stage folder that describe the run; no other stage reads them."""
LOGS, CURVES = "logs", "metrics.jsonl"
RUN_FOLDERS = {LOGS, "checkpoints"}
"""Subfolders of a stage folder that no other stage reads."""
_FOLDER_OF_RECORD = {"prepared.json": "parts"}  # file with the hashes of all files in the folder next to it


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the bytes of one file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            raise_if_stopped()
            digest.update(block)
    return digest.hexdigest()


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a plain value (dict, list, str, numbers, None), as 64 hexadecimal digits; the order of
    dictionary keys has no effect."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def quick_look(status: os.stat_result) -> list[int]:
    """Return size, modification time, change time (both in ns) and inode of a file: at least one of them changes with
    its content, because no program can set the change time."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


class FileHashes:
    """Hashes files; caches the hashes by path and `quick_look`, in memory and in the JSON file `cache` if it is given.

    `trust_cache=False` ignores the hashes in that file."""

    def __init__(self, cache: Path | None = None, trust_cache: bool = True) -> None:
        self._cache = cache
        self._entries: dict[str, list[Any]] = {}
        if cache is not None and cache.is_file() and trust_cache:
            self._entries = _read_cache(cache)

    def of_file(self, path: Path) -> str:
        """Return `hash_file` of a file, from the cache if its `quick_look` is the same."""
        name, stamp = redact(str(path.resolve())), quick_look(path.stat())
        entry = self._entries.get(name)
        if entry is None or entry[:-1] != stamp:  # an entry is a quick look, then the hash
            entry = self._entries[name] = [*stamp, hash_file(path)]
        return str(entry[-1])

    def hash_path(self, path: Path) -> str:
        """Return the hash of a file, or of the relative names and contents of all files below a folder.

        Ignored are `run.json` and model cards; in a stage folder also the other `RUN_FILES` and the `RUN_FOLDERS`; and
        the parts of a corpus whose hashes are in `prepared.json`, because they may be too large to read at each
        start."""
        if not path.is_dir():
            return self.of_file(path)
        in_stage = any((folder / RUN).is_file() for folder in (path, path.parent))  # parent: `seed-1`
        not_hashed, skipped = (RUN_FILES, RUN_FOLDERS) if in_stage else (_NOT_HASHED, set())
        recorded_folders = {path / folder for record, folder in _FOLDER_OF_RECORD.items() if (path / record).is_file()}
        files = (file for file in _files_below(path) if file.is_file() and file.name not in not_hashed)
        names = [file.relative_to(path) for file in files if recorded_folders.isdisjoint(file.parents)]
        names = [name for name in names if skipped.isdisjoint(name.parts)]
        return hash_json({name.as_posix(): self.of_file(path / name) for name in names})

    def save(self) -> None:
        """Write the cache file, if there is one."""
        if self._cache is not None:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._cache, self._entries, unredacted=True)


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, also in linked folders, each folder once."""
    seen = set[str]()
    for parent, folders, names in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(parent))
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(parent, name)) not in seen]
        yield from (Path(parent) / name for name in names)


HASHES = FileHashes()
"""Hashes of this process, in memory only; several checks of a stage need the same files."""


def _read_cache(path: Path) -> dict[str, list[Any]]:
    try:
        entries = read_json(path, "hashes of files by name")
    except DomainbertError:  # truncated by a crash: only costs time
        return {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, list) and len(entry) == _ENTRY_LENGTH}
