"""A folder of bounded size for copies of files, which all processes of a machine share.

    locks                         is locked byte by byte: one for the account of the folder, one for each file
    0f3a...-9c41...               a whole file; its modification time is when it was last used
    0f3a...-9c41....tmp           one on its way; it has its final size from the start, so that it counts in full
    0f3a...-9c41....checked       which run last found which copy to be right

Locks are those of `lockf`: they end with their process, where those of `flock` would live on in a loader's worker that
was forked meanwhile. They are tried in turn, since the kernel takes threads of two processes that wait for each other's
files for a deadlock.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from domainbert.base.errors import DomainbertError
from domainbert.base.files import told_if_full

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 5.0  # from the use of a file, in which its user opens it
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}(\.tmp)?")
_ON_ITS_WAY, _CHECKED = ".tmp", ".checked"
_ACCOUNT = ""


class FileCache:
    """Files of at most `limit` bytes together: those used longest ago make room. Several processes may use a folder at
    a time; a file that leaves stays readable where it is mapped or open.

    A name has 16 hexadecimal digits, a hyphen and 64 more.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit

    def path(self, name: str) -> Path:
        """The place of a file."""
        return self.folder / name

    def status(self, name: str) -> os.stat_result | None:
        """Size and inode of a file; None if there is none."""
        try:
            return self.path(name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def use(self, name: str) -> bool:
        """Record that a file is used now, so that it stays for some seconds, in which it can be opened; False if it has
        left."""
        with self._alone(_ACCOUNT):  # else it might be chosen to leave, and leave a moment after this
            return self._used_at(name, time.time_ns())  # the system's own time of a file steps by milliseconds

    def expect(self, name: str) -> None:
        """Record that a file will be used: it leaves after those that were used before, and is not held as one that is
        being opened."""
        with self._alone(_ACCOUNT):
            status = self.status(name)
            if status is not None:
                self._used_at(name, max(time.time_ns() - int(_GRACE_SECONDS * 1e9), status.st_mtime_ns))

    def _used_at(self, name: str, nanoseconds: int) -> bool:
        try:
            os.utime(self.path(name), ns=(nanoseconds, nanoseconds))
        except FileNotFoundError:
            return False
        return True

    def mark(self, name: str, text: str) -> None:
        """Note a text beside a file, by the one who is alone with it."""
        self.path(name + _CHECKED).write_text(text, encoding="utf-8")

    def marked(self, name: str) -> str:
        """The text that was noted last; empty if there is none."""
        try:
            return self.path(name + _CHECKED).read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    @contextmanager
    def alone_with(self, name: str) -> Iterator[None]:
        """Keep all other threads and processes from writing a file of this name."""
        with _told(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone(name):
            yield

    @contextmanager
    def _alone(self, lock: str) -> Iterator[None]:
        with _told(self.folder):
            locks = _locks_of(self.folder)
            while not locks.take(lock):
                time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            locks.leave(lock)

    @contextmanager
    def written(self, name: str, size: int) -> Iterator[BinaryIO]:
        """A file to be written, alone with its name: whole in its place afterwards, and gone after an error.

        Raises:
            DomainbertError: it is larger than the bound, or the disk is full or refuses it.
        """
        if size > self.limit:
            raise DomainbertError(
                f"cache.gigabytes: {self.limit / 1e9:g}, and a file of the corpus has {size:,} bytes; expected room "
                "for the files of two windows of parts"
            )
        temporary = self.path(name + _ON_ITS_WAY)
        with _told(self.folder):
            while not self._room_for(name, size):
                time.sleep(_POLL_SECONDS)
            try:
                with open(temporary, "r+b") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self.path(name))
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

    def _room_for(self, name: str, size: int) -> bool:
        """Evict what has to leave, and reserve the room; False if for now too little can leave."""
        with self._alone(_ACCOUNT):
            whole, on_their_way = self._entries(name)
            excess = sum(entry.size for entry in whole) + on_their_way + size - self.limit
            leaving = []
            for entry in sorted(whole):
                if excess <= 0 or abs(time.time() - entry.used) < _GRACE_SECONDS:
                    break
                leaving.append(entry.path)
                excess -= entry.size
            if excess > 0:
                return False
            for path in leaving:
                self.path(path.name + _CHECKED).unlink(missing_ok=True)
                path.unlink(missing_ok=True)
            with open(self.path(name + _ON_ITS_WAY), "wb") as file:
                file.truncate(size)
            return True

    def _entries(self, but: str) -> tuple[list[_Entry], int]:
        """The whole files, and the bytes of those on their way; what a killed process left is deleted."""
        whole, on_their_way = [], 0
        for path in self.folder.iterdir():
            name = path.name.removesuffix(_ON_ITS_WAY)
            if not _NAME.fullmatch(path.name) or name == but:
                continue
            try:
                if path.name == name:
                    status = path.stat()
                    whole.append(_Entry(status.st_mtime, status.st_size, path))
                elif not self._is_abandoned(name):
                    on_their_way += path.stat().st_size
            except FileNotFoundError:  # came to its place, or failed, meanwhile
                continue
        return whole, on_their_way

    def _is_abandoned(self, name: str) -> bool:
        """Whether nobody writes a file that is on its way, which is then deleted."""
        locks = _locks_of(self.folder)
        if not locks.take(name):
            return False
        try:
            self.path(name + _ON_ITS_WAY).unlink(missing_ok=True)
        finally:
            locks.leave(name)
        return True


class _Entry(NamedTuple):
    used: float  # seconds since 1970
    size: int
    path: Path


class _Locks:
    """Locks by name, among the threads of this process and among processes. The file stays open as long as the process
    lives: to close it anywhere would end all locks that the process has on it."""

    def __init__(self, path: Path) -> None:
        self._path, self._mutex, self._held = path, threading.Lock(), set[str]()
        self._file: int | None = None

    def take(self, name: str) -> bool:
        """Take a lock; False if another thread or process has it."""
        with self._mutex:
            if name in self._held:
                return False
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(name))
            except (BlockingIOError, PermissionError):  # POSIX allows both errors
                return False
            self._held.add(name)
            return True

    def leave(self, name: str) -> None:
        """Give a lock back."""
        with self._mutex:
            assert self._file is not None
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(name))
            self._held.discard(name)


_LOCKS: dict[tuple[int, Path], _Locks] = {}


def _locks_of(folder: Path) -> _Locks:
    """Those of this process: what a parent held when it was forked is the parent's."""
    folder = folder.resolve()
    return _LOCKS.setdefault((os.getpid(), folder), _Locks(folder / "locks"))


def _place(name: str) -> int:
    """The byte that stands for a name: 1 + 60 of the bits of its two hashes, the first byte for the account."""
    return 0 if name == _ACCOUNT else 1 + (int(name[:15], 16) ^ int(name[17:32], 16))


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Turn errors of the disk into a `DomainbertError`."""
    try:
        with told_if_full(folder):
            yield
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        raise DomainbertError(
            f"cache.folder: {folder}: {reason}; expected a folder on a disk of this machine"
        ) from error
