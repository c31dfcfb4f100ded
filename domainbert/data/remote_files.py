"""Files of a prepared corpus, on disk or at a URL, from which fsspec copies them to a cache on demand.

s3fs and gcsfs retry failed requests; fsspec's HTTP file system does not, so requests are retried here.
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
from domainbert.base.fields import Range, check_fields
from domainbert.base.files import disk_full_message, folder_lock, hash_file, report_full_disk
from domainbert.base.paths import check_home_expanded, check_url, is_url
from domainbert.base.redact import redact

_SHA256 = re.compile(r"[0-9a-f]{64}")
_COPY = re.compile(rf"[0-9a-f]{{16}}-{_SHA256.pattern}")  # name of a copy: hash of the URL, SHA-256 of the file
_TRIES = 6  # per file: half a minute
_KEEP_SECONDS = 5.0  # after `path`, so that the caller can open the copy
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
_TEMPORARY = (408, 425, 429)  # HTTP client errors to retry: timeout, too early, too many requests
_HINT = "check URL and network, then run the same command again to resume from the last checkpoint"
Gigabytes = Annotated[float, Range(0, 1e6, exclude_low=True)]


@dataclass(frozen=True)
class CacheConfig:
    """Local cache for a corpus whose parts are at a URL."""

    folder: str
    """Folder of the cache, on a local disk; created if it is missing. All processes, runs and corpora on this machine
    can share it. It must contain no other files, and may be deleted while no run uses it."""

    gigabytes: Gigabytes
    """Maximum size of the folder in gigabytes (10^9 bytes), at least two windows of parts. The least recently used
    files are deleted first."""

    url: str | None = None
    """URL of the parts if they have moved; null uses the URL that `merge` stored. An interrupted run can resume from a
    new URL."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_home_expanded("folder", self.folder)
        if self.url is not None:
            check_url("url", self.url)


class _TooLong(Exception):
    """More bytes have been read than the file should have."""


class FileFacts(NamedTuple):
    """A file below the root of a corpus."""

    name: str  # relative path with "/"
    bytes: int
    sha256: str


class LocalFiles:
    """Files below a folder on a disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, file: FileFacts) -> Path:
        """Return the path of a file. Raise `DomainbertError` if the file is missing or has another size."""
        path = self.root / file.name
        size = path.stat().st_size if path.is_file() else None
        if size != file.bytes:
            problem, found = ("is missing", "") if size is None else ("", f"{size:,} bytes")
            expected = f"{file.bytes:,} bytes: copy it again, or run `prepare`"
            raise DomainbertError(problem, file=path, found=found, expected=expected)
        return path


class RemoteFiles:
    """Files at a URL, copied to a folder that all processes of this machine share. Each process verifies the SHA-256 of
    a copy when it first opens the copy. Objects can be pickled.

    Raises:
        DomainbertError: no installed package reads URLs of this protocol.
    """

    def __init__(self, url: str, cache: CacheConfig) -> None:
        _check_readable(url)
        self.url, self.cache = url, cache
        # without credentials, which may change while the corpus stays the same
        self._prefix = hashlib.sha256(redact(url.rstrip("/"), {}).encode()).hexdigest()[:16]
        self._verified: dict[str, int] = {}  # inodes of the copies that this process has verified

    def path(self, file: FileFacts) -> Path:
        """Return the path of a verified copy. Open it immediately: an open or mapped copy stays readable.

        Raises:
            DomainbertError: the file cannot be fetched, or has changed since `prepare` wrote it.
        """
        if not _SHA256.fullmatch(file.sha256):
            checksum = f"the checksum {file.sha256!r} of {file.name} in prepared.json"
            raise DomainbertError(found=checksum, file=redact(self.url), expected="a SHA-256: run `merge` again")
        folder = Path(self.cache.folder)
        copy = folder / f"{self._prefix}-{file.sha256}"
        with suppress(OSError):  # another process may delete or write the copy
            self._verify(copy, file)  # before the lock is taken, so that processes hash in parallel
        try:
            with report_full_disk(folder), folder_lock(folder):
                self._ensure_copy(copy, file)
                now = time.time_ns()  # file times set by the kernel have a resolution of milliseconds
                os.utime(copy, ns=(now, now))
        except OSError as error:
            found = f"{folder}, which cannot be written ({error.strerror or error})"
            expected = "a writable folder on this machine"
            raise DomainbertError(where="cache.folder", found=found, expected=expected) from error
        return copy

    def _verify(self, copy: Path, file: FileFacts) -> DomainbertError | None:
        """Return how a copy differs from the file; None if it does not. A correct copy is remembered, and not read
        again."""
        status = copy.stat()
        if status.st_ino == self._verified.get(copy.name) and status.st_size == file.bytes:
            return None
        difference = _difference(copy, file)
        if not difference:
            self._verified[copy.name] = status.st_ino
        return difference

    def _ensure_copy(self, copy: Path, file: FileFacts) -> None:
        """Fetch the file unless its copy is valid, a second time if the first copy is wrong. The caller holds the lock,
        because fsspec writes in place."""
        url = self._url_of(file.name)
        if copy.exists():
            difference = self._verify(copy, file)
            if not difference:
                return
            print(f"{copy}: {difference}; fetching {redact(url)} again", flush=True)
            copy.unlink()
        self._make_room(copy.parent, file.bytes)
        for is_last_try in (False, True):
            self._verified.pop(copy.name, None)  # the inode of a deleted copy may be used again
            _fetch(url, copy, file.bytes)
            difference = self._verify(copy, file)
            if not difference:
                return
            copy.unlink()
            if is_last_try:
                expected = f"{difference.expected}, as `prepare` wrote it: upload it again"
                raise DomainbertError(difference.problem, file=redact(url), expected=expected)
            print(f"{redact(url)}: {difference}; fetching it again", flush=True)

    def _make_room(self, folder: Path, size: int) -> None:
        # a copy that was used in the last seconds stays: its process may just open it
        max_bytes = round(self.cache.gigabytes * 1e9)
        if size > max_bytes:
            sizes = f"{self.cache.gigabytes:g}, but one file of the corpus has {size / 1e9:g} gigabytes"
            raise DomainbertError(
                where="cache.gigabytes",
                found=sizes,
                expected="room for twice as many files as the `window` of stage merge",
            )
        copies = [(path.stat(), path) for path in folder.iterdir() if _COPY.fullmatch(path.name)]  # of all corpora
        excess = sum(status.st_size for status, _ in copies) + size - max_bytes
        for status, path in sorted(copies, key=lambda item: item[0].st_mtime):
            if excess <= 0 or abs(time.time() - status.st_mtime) < _KEEP_SECONDS:
                return
            path.unlink()
            excess -= status.st_size

    def _url_of(self, name: str) -> str:
        # the query of an HTTP URL, which may be a signature, stays at the end
        if not self.url.startswith(("http://", "https://")):
            return f"{self.url.rstrip('/')}/{name}"
        root, mark, query = self.url.partition("?")
        return f"{root.rstrip('/')}/{quote(name)}{mark}{query}"


def _difference(copy: Path, file: FileFacts) -> DomainbertError | None:
    if (size := copy.stat().st_size) != file.bytes:
        return DomainbertError(f"{size:,} bytes", expected=f"{file.bytes:,}")
    digest = hash_file(copy)
    return None if digest == file.sha256 else DomainbertError(f"SHA-256 {digest[:12]}", expected=file.sha256[:12])


def _check_readable(url: str) -> None:
    import fsspec

    try:
        fsspec.get_filesystem_class(url.partition("://")[0])
    except ImportError as error:
        raise DomainbertError(f"needs a package that is not installed: {error}", file=redact(url)) from error
    except ValueError as error:
        raise DomainbertError(
            "unknown protocol", file=redact(url), expected="a protocol of fsspec, such as s3://"
        ) from error


def _fetch(url: str, copy: Path, size: int) -> None:
    """Download a file, with retries; a file longer than `size` only in part, so that its copy is too long."""
    from fsspec.callbacks import Callback
    from fsspec.core import url_to_fs

    def stop_if_too_long(_: int | None, value: int) -> None:
        if value > size:
            raise _TooLong

    for number in range(1, _TRIES + 1):
        try:
            store, path = url_to_fs(url)
            store.get_file(path, str(copy), callback=Callback(hooks={"size": stop_if_too_long}))
            return
        except _TooLong:
            return
        except Exception as error:  # network libraries raise many unrelated types
            copy.unlink(missing_ok=True)
            if disk_full_message(error) or (isinstance(error, OSError) and error.filename == str(copy)):
                raise  # an error of the local disk
            reason = redact(" ".join(f"{type(error).__name__}: {error}".split()).rstrip(": "))
            status = vars(error).get("status", vars(error).get("code"))  # of aiohttp and of gcsfs
            refused = isinstance(status, int) and 400 <= status < 500 and status not in _TEMPORARY
            if refused or isinstance(error, _PERMANENT) or number == _TRIES:
                failure = f"could not be read at try {number} of {_TRIES} ({reason})"
                raise DomainbertError(failure, file=redact(url), expected=f"{size:,} bytes: {_HINT}") from None
        wait = 2 ** (number - 1)
        print(f"{redact(url)}: {reason}; retrying in {wait} s", flush=True)
        time.sleep(wait)


Files = LocalFiles | RemoteFiles


def open_files(root: str, cache: CacheConfig | None) -> Files:
    """Return the files below `root`, a folder or a URL. Raise `DomainbertError` for a URL without `cache`."""
    if not is_url(root):
        return LocalFiles(Path(root))
    if cache is None:
        raise DomainbertError(
            f"missing, but the parts are at {redact(root)}",
            where="cache",
            expected="cache: {folder: ..., gigabytes: ...}",
        )
    return RemoteFiles(root, cache)
