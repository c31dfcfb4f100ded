"""Files of a prepared corpus, on a disk or at a URL: then fsspec copies them to this machine as they are needed.

s3fs and gcsfs repeat requests that fail; fsspec's HTTP does not, so each file is asked for several times here.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import quote

from domainbert.base.errors import DomainbertError
from domainbert.base.files import disk_full, folder_lock, told_if_full
from domainbert.base.hashes import hash_file
from domainbert.base.paths import check_url, check_whole, is_url
from domainbert.base.ranges import Range
from domainbert.base.redact import redact
from domainbert.base.validation import check_fields

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TRIES = 6  # of a file: half a minute
_OPENED_WITHIN = 5.0  # seconds after `path` in which a copy stays
_FOR_GOOD = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
_MAY_PASS = (408, 425, 429)  # too slow, too early, too many: statuses of HTTP from 400 on that are no answer
_HINT = "the run goes on from its last checkpoint when it is started again"
Gigabytes = Annotated[float, Range(0, 1e6, above=True)]


@dataclass(frozen=True)
class CacheConfig:
    """The files of a corpus at a URL that are kept on this machine."""

    folder: str
    """Folder on a disk of this machine, the same for all its processes and for any number of runs and corpora, and for
    nothing else; it is made where there is none. What it holds may be deleted while nothing runs."""

    gigabytes: Gigabytes
    """Gigabytes (of a thousand million bytes) that the folder holds: those used longest ago make room. Two windows of
    parts, or more."""

    url: str | None = None
    """URL of the parts, where these have moved since `merge` was told of theirs: an interrupted run resumes from there.
    None is the one that `merge` was told."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_whole("folder", self.folder)
        if self.url is not None:
            check_url("url", self.url)


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


class RemoteFiles:
    """Files at a URL, of which whole copies are kept in a folder that all processes of this machine share. Each process
    compares a copy with its SHA-256 when it first opens it. An object can be sent to other processes.

    Raises:
        DomainbertError: nothing installed reads URLs of this kind.
    """

    def __init__(self, url: str, cache: CacheConfig) -> None:
        _check_readable(url)
        self.url, self.cache = url, cache
        # passwords in a URL change, and the corpus stays the same
        self._prefix = hashlib.sha256(redact(url.rstrip("/"), {}).encode()).hexdigest()[:16]
        self._right: dict[str, int] = {}  # inodes of copies that this process knows to be right

    def path(self, file: FileFacts) -> Path:
        """The path of a right copy, to be opened at once: it stays readable where it is open or mapped.

        Raises:
            DomainbertError: it cannot be fetched, or is not what was written.
        """
        if not _SHA256.fullmatch(file.sha256):
            raise DomainbertError(f"{redact(self.url)}: {file.name}: {file.sha256!r}; expected a SHA-256")
        folder = Path(self.cache.folder)
        copy = folder / f"{self._prefix}-{file.sha256}"
        self._look_at(copy, file)
        try:
            with told_if_full(folder), folder_lock(folder):
                self._have(copy, file)
                now = time.time_ns()  # the system's own time of a file steps by milliseconds
                os.utime(copy, ns=(now, now))
        except OSError as error:
            reason = f"cannot be written ({error.strerror or error})"
            raise DomainbertError(f"cache.folder: {folder}: {reason}; expected a folder of this machine") from error
        return copy

    def _look_at(self, copy: Path, file: FileFacts) -> None:
        """Compare a copy that is there already with its SHA-256, while other processes may do the same with others."""
        with suppress(OSError):  # it may leave, or be on its way
            inode = copy.stat().st_ino
            if inode != self._right.get(copy.name) and not _difference(copy, file):
                self._right[copy.name] = inode

    def _have(self, copy: Path, file: FileFacts) -> None:
        """Leave a right copy, by the one process that has the lock: fsspec writes it in place."""
        url, found = self._url_of(file.name), ""
        if copy.exists():
            if copy.stat().st_ino == self._right.get(copy.name) and copy.stat().st_size == file.bytes:
                return
            found = _difference(copy, file)
            if found:
                print(f"{copy}: {found}; {redact(url)} is fetched again", flush=True)
        if found or not copy.exists():
            copy.unlink(missing_ok=True)
            self._make_room(copy.parent, file.bytes)
            for last in (False, True):
                _fetch(url, copy, file.bytes)
                found = _difference(copy, file)
                if not found:
                    break
                copy.unlink()
                if last:
                    raise DomainbertError(f"{redact(url)}: {found}, as `prepare` wrote it")
                print(f"{redact(url)}: {found}; fetched again", flush=True)
        self._right[copy.name] = copy.stat().st_ino

    def _make_room(self, folder: Path, size: int) -> None:
        """Delete the copies that were used longest ago, as many as have to leave; one that is being opened stays."""
        room = round(self.cache.gigabytes * 1e9)
        if size > room:
            found = f"{self.cache.gigabytes:g}, and a file of the corpus has {size:,} bytes"
            raise DomainbertError(f"cache.gigabytes: {found}; expected room for the files of two windows of parts")
        copies = [(path.stat(), path) for path in folder.glob("*-*")]
        excess = sum(status.st_size for status, _ in copies) + size - room
        for status, path in sorted(copies, key=lambda one: one[0].st_mtime):
            if excess <= 0 or abs(time.time() - status.st_mtime) < _OPENED_WITHIN:
                return
            path.unlink()
            excess -= status.st_size

    def _url_of(self, name: str) -> str:
        """The URL of a file, which may hold a password: what signs a URL of HTTP stays behind the name."""
        if not self.url.startswith(("http://", "https://")):
            return f"{self.url.rstrip('/')}/{name}"
        root, mark, query = self.url.partition("?")
        return f"{root.rstrip('/')}/{quote(name)}{mark}{query}"


def _difference(copy: Path, file: FileFacts) -> str:
    """In which way a copy is not what was written; empty if it is."""
    if (size := copy.stat().st_size) != file.bytes:
        return f"{size:,} bytes; expected {file.bytes:,}"
    digest = hash_file(copy)
    return "" if digest == file.sha256 else f"SHA-256 {digest[:12]}; expected {file.sha256[:12]}"


def _check_readable(url: str) -> None:
    import fsspec
    from fsspec.registry import known_implementations

    protocol = url.partition("://")[0]
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        package = str(known_implementations[protocol]["class"]).partition(".")[0].replace("_", "-")
        raise DomainbertError(f"{redact(url)}: needs a package that is not here: pip install {package}") from error
    except ValueError as error:
        raise DomainbertError(f"{redact(url)}: no such kind of URL; expected one of fsspec, such as s3://") from error


def _fetch(url: str, copy: Path, size: int) -> None:
    """Copy a file with fsspec's cache of whole files, the one that writes no URL, with what signs it, beside them."""
    import fsspec
    from fsspec.core import OpenFile, OpenFiles, url_to_fs

    for number in range(1, _TRIES + 1):
        try:
            store, path = url_to_fs(url)
            kept = {"cache_storage": str(copy.parent), "cache_mapper": lambda _: copy.name}
            cached = fsspec.filesystem("simplecache", fs=store, skip_instance_cache=True, **kept)
            cached.open_many(OpenFiles([OpenFile(cached, path)], fs=cached))[0].close()
            return
        except Exception as error:  # libraries of networks raise dozens of unrelated types
            copy.unlink(missing_ok=True)
            if disk_full(error) or (isinstance(error, OSError) and error.filename == str(copy)):
                raise  # of this disk
            reason = redact(" ".join(f"{type(error).__name__}: {error}".split()).rstrip(": "))
            status = vars(error).get("status", vars(error).get("code"))  # of aiohttp and of gcsfs
            refused = isinstance(status, int) and 400 <= status < 500 and status not in _MAY_PASS
            if refused or isinstance(error, _FOR_GOOD) or number == _TRIES:
                found = f"{reason} at try {number} of {_TRIES}; expected {size:,} bytes"
                raise DomainbertError(f"{redact(url)}: {found}: {_HINT}") from None
        wait = 2 ** (number - 1)
        print(f"{redact(url)}: {reason}; tried again in {wait} s", flush=True)
        time.sleep(wait)


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
