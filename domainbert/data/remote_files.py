"""Files of a prepared corpus, on a disk or at a URL: then they are fetched to this machine as they are needed."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from domainbert.base.errors import DomainbertError
from domainbert.base.hashes import hash_file
from domainbert.base.paths import is_url
from domainbert.base.ranks import laid_out, launch_id
from domainbert.base.redact import redact
from domainbert.data.cache_config import CacheConfig
from domainbert.data.file_cache import FileCache
from domainbert.data.remote_store import RemoteStore, wait_after

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TRIES = 10  # of a block that training waits for: four minutes
_TRIES_AHEAD = 3  # of one that is fetched ahead
_WHOLE_TRIES = 3  # of a file whose bytes are not those that were written


class FileFacts(NamedTuple):
    """A file below the root of a corpus."""

    name: str  # with / between its parts
    bytes: int
    sha256: str


class LocalFiles:
    """Files on a disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, file: FileFacts) -> Path:
        """The path; `DomainbertError` if it is missing or has another size."""
        path = self.root / file.name
        size = path.stat().st_size if path.is_file() else None
        if size != file.bytes:
            found = "missing" if size is None else f"{size:,} bytes"
            raise DomainbertError(f"{path}: {found}; expected {file.bytes:,} bytes")
        return path

    def prefetch(self, files: Sequence[FileFacts]) -> None:
        """Nothing: they are here."""


class RemoteFiles:
    """Files at a URL, of which copies are kept in a folder that all processes of this machine share: each is fetched
    by one of them. Their SHA-256 is compared as they are fetched, and by the first process of a run that uses copies of
    earlier runs. An object can be sent to other processes, and survives a fork.

    Args:
        url: of the root of the corpus.
        cache: where the copies are kept.
        run: a text that all processes of a run have in common; None takes that of the launch.

    Raises:
        DomainbertError: nothing installed reads URLs of this kind.
    """

    def __init__(self, url: str, cache: CacheConfig, run: str | None = None) -> None:
        self.url, self.cache = url, cache
        self.run = run or _this_run()
        self._store, self._copies = RemoteStore(url), FileCache(Path(cache.folder), cache.bytes)
        # passwords in a URL change, and the corpus stays the same
        self._prefix = hashlib.sha256(redact(url.rstrip("/"), {}).encode()).hexdigest()[:16]
        self._right: dict[str, tuple[int, int]] = {}  # inode and size of copies that this process knows to be right
        self._ahead: _Ahead | None = None

    def __reduce__(self) -> tuple[Callable[..., RemoteFiles], tuple[str, CacheConfig, str]]:
        """Threads and locks are made anew by each process."""
        return RemoteFiles, (self.url, self.cache, self.run)

    def path(self, file: FileFacts) -> Path:
        """The path of a whole, right copy, which is waited for.

        It is there for five seconds at least, in which it is to be opened. It stays readable where it is open or
        mapped, even if it has to make room for others later.

        Raises:
            DomainbertError: it cannot be fetched, is not what was written, or finds no room.
        """
        name = self._name(file)
        while True:
            status = self._copies.status(name)
            known = status is not None and self._right.get(name) == (status.st_ino, status.st_size)
            if not known:
                self._fetch(file, _TRIES)
            elif self._copies.use(name):
                return self._copies.path(name)

    def prefetch(self, files: Sequence[FileFacts]) -> None:
        """Fetch the files in the background, in this order, as many of them as the folder has room for; those that an
        earlier call asked for, and that are not on their way yet, are forgotten. What fails is left to `path`."""
        if self._ahead is None or self._ahead.process != os.getpid():
            self._ahead = _Ahead(self._expect, self._fetch_ahead)
        self._ahead.ask(self._fitting(files))

    def _fitting(self, files: Sequence[FileFacts]) -> list[FileFacts]:
        """Those at the start that find room together: more would drive each other out before they are used."""
        fitting, room = [], self.cache.bytes
        for file in dict.fromkeys(files):
            room -= file.bytes
            if room < 0:
                break
            fitting.append(file)
        return fitting

    def _name(self, file: FileFacts) -> str:
        """The name of a copy: no other corpus and no other content has it."""
        if not _SHA256.fullmatch(file.sha256):
            raise DomainbertError(f"{redact(self.url)}: {file.name}: {file.sha256!r}; expected a SHA-256")
        return f"{self._prefix}-{file.sha256}"

    def _expect(self, files: Sequence[FileFacts]) -> None:
        with suppress(DomainbertError, OSError):  # without it they may leave sooner
            for file in reversed(files):
                self._copies.expect(self._name(file))

    def _fetch_ahead(self, file: FileFacts) -> None:
        try:
            self._fetch(file, _TRIES_AHEAD)
        except (DomainbertError, OSError):  # if it is needed, `path` tries longer, and tells
            return

    def _fetch(self, file: FileFacts, tries: int) -> None:
        """Have a right copy: the one that is there, also from another process that is waited for, or a new one."""
        name = self._name(file)
        with self._copies.alone_with(name):
            if self._is_right(name, file):
                return
            for number in range(1, _WHOLE_TRIES + 1):
                try:
                    return self._download(name, file, tries)
                except _OtherContent as error:
                    if number == _WHOLE_TRIES:
                        raise DomainbertError(str(error)) from None
                    print(f"{error}; tried again", flush=True)
                    time.sleep(wait_after(number))

    def _is_right(self, name: str, file: FileFacts) -> bool:
        """Whether there is a copy that is right; a wrong one is deleted."""
        path, status = self._copies.path(name), self._copies.status(name)
        if status is None:
            return False
        found = f"{status.st_size:,} bytes" if status.st_size != file.bytes else ""
        if not found and self._copies.marked(name) != self._mark(status):
            try:
                found = "damaged" if hash_file(path) != file.sha256 else ""
            except FileNotFoundError:  # made room for another one meanwhile
                return False
            except OSError as error:
                found = f"cannot be read ({error.strerror})"
        if found:
            path.unlink(missing_ok=True)
            print(f"{path}: {found}; {redact(self._store.url_of(file.name))} is fetched again", flush=True)
            return False
        self._believe(name, status)
        return True

    def _download(self, name: str, file: FileFacts, tries: int) -> None:
        digest = hashlib.sha256()
        with self._copies.written(name, file.bytes) as copy:
            for block in self._store.blocks(file.name, file.bytes, tries):
                digest.update(block)
                copy.write(block)
            if digest.hexdigest() != file.sha256:
                found = f"SHA-256 {digest.hexdigest()[:12]}; expected {file.sha256[:12]}, as `prepare` wrote it"
                raise _OtherContent(f"{redact(self._store.url_of(file.name))}: {found}")
            status = os.fstat(copy.fileno())
        self._believe(name, status)

    def _believe(self, name: str, status: os.stat_result) -> None:
        """Remember, for the other processes of the run too, that a copy is right."""
        self._copies.mark(name, self._mark(status))
        self._right[name] = status.st_ino, status.st_size

    def _mark(self, status: os.stat_result) -> str:
        return f"{self.run} {status.st_ino}"


def _this_run() -> str:
    """A text that the processes of a run on this machine have in common. A launcher may give all its launches one id,
    so the process counts as well that it started these from."""
    launched = launch_id()
    return f"{launched} {os.getppid()}" if laid_out() else launched or f"{os.getpid()} {time.time_ns()}"


class _OtherContent(Exception):
    """The bytes of a file are not those that were written."""


class _Ahead:
    """A thread of this process that fetches files in the order in which they were last asked for, and then ends."""

    def __init__(self, expect: Callable[[Sequence[FileFacts]], None], fetch: Callable[[FileFacts], None]) -> None:
        self.process = os.getpid()
        self._expect, self._fetch = expect, fetch
        self._mutex, self._runs = threading.Lock(), False
        self._files: list[FileFacts] = []
        self._waiting = deque[FileFacts]()

    def ask(self, files: list[FileFacts]) -> None:
        """Replace what is waiting."""
        with self._mutex:
            self._files, self._waiting = files, deque(files)
            if self._waiting and not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="prefetch", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._runs = False
                    return
                file = self._waiting.popleft()
                files = self._files
            self._expect(files)
            self._fetch(file)


Files = LocalFiles | RemoteFiles


def open_files(root: str, cache: CacheConfig | None) -> Files:
    """The files below a folder or a URL.

    Raises:
        DomainbertError: it is a URL, and there is no `cache` or nothing installed that reads such URLs.
    """
    if not is_url(root):
        return LocalFiles(Path(root))
    if cache is None:
        found = f"{redact(root)} is read from afar"
        raise DomainbertError(f"cache: not given, and {found}; expected cache: {{folder: ..., gigabytes: ...}}")
    return RemoteFiles(root, cache)
