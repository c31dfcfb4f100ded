"""Files at a URL, read with fsspec in blocks; what fails on the way is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import fsspec
from fsspec.core import url_to_fs
from fsspec.registry import known_implementations

from domainbert.base.errors import DomainbertError
from domainbert.base.redact import redact

_BLOCK_BYTES = 16 * 1024**2
_LONGEST_WAIT = 60.0
_FOR_GOOD = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
_MAY_PASS = (408, 425, 429)  # too slow, too early, too many: statuses of HTTP from 400 on that are no answer
_HINT = "the run goes on from its last checkpoint when it is started again"
Answer = TypeVar("Answer")


class RemoteStore:
    """The files below a URL. An object is small, and can be sent to other processes.

    Raises:
        DomainbertError: nothing installed reads URLs of this kind.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        protocol = url.partition("://")[0]
        try:
            fsspec.get_filesystem_class(protocol)
        except ImportError as error:
            module = str(known_implementations[protocol]["class"]).partition(".")[0]
            package = module.replace("_", "-")
            raise DomainbertError(f"{redact(url)}: needs a package that is not here: pip install {package}") from error
        except ValueError as error:
            raise DomainbertError(
                f"{redact(url)}: no such kind of URL; expected one of fsspec, such as s3://"
            ) from error

    def url_of(self, name: str) -> str:
        """The URL of a file below, which may hold a password: what signs a URL of HTTP stays behind the name."""
        if not self.url.startswith(("http://", "https://")):
            return f"{self.url.rstrip('/')}/{name}"
        root, mark, query = self.url.partition("?")
        return f"{root.rstrip('/')}/{quote(name)}{mark}{query}"

    def blocks(self, name: str, size: int, tries: int) -> Iterator[bytes]:
        """The bytes of a file, block by block. Each block is asked for as often as `tries` before that is an error.

        Raises:
            DomainbertError: there is no such file, it may not be read or has another size, or the last try failed.
        """
        url, start = self.url_of(name), 0
        while start < size:
            stop = min(start + _BLOCK_BYTES, size)
            block = persistently(url, partial(_read, url, start, stop, size), tries, f"expected {size:,} bytes")
            yield block
            start += len(block)


def read_remote(url: str, tries: int = 5) -> bytes:
    """The bytes of a small file at a URL, such as `prepared.json`.

    Raises:
        DomainbertError: nothing installed reads such URLs, there is no such file, or the last try failed.
    """
    RemoteStore(url)
    return persistently(url, partial(_read, url), tries, "expected a file that can be read")


def persistently(url: str, ask: Callable[[], Answer], tries: int, expected: str) -> Answer:
    """The answer of a server, which is asked again after 1, 2, 4 and so on up to 60 seconds: these waits do not depend
    on chance, and each is printed.

    Raises:
        DomainbertError: the last try failed, or another one would fail as well.
    """
    for number in range(1, tries + 1):
        try:
            return ask()
        except Exception as error:  # libraries of networks raise dozens of unrelated types
            reason = redact(" ".join(f"{type(error).__name__}: {error}".split()).rstrip(": "))
            final = _is_final(error)
            if final or number == tries:
                after = "" if final else f" at the last of {tries} tries"
                raise DomainbertError(f"{redact(url)}: {reason}{after}; {expected}: {_HINT}") from None
        wait = wait_after(number)
        print(f"{redact(url)}: {reason}; tried again in {wait:g} s", flush=True)
        time.sleep(wait)
    raise AssertionError("tries: expected at least one")


def wait_after(number: int) -> float:
    """Seconds to wait after a try failed, counted from 1."""
    return min(2.0 ** (number - 1), _LONGEST_WAIT)


def _read(url: str, start: int | None = None, stop: int | None = None, size: int | None = None) -> bytes:
    """Part of a file. fsspec makes its connections anew in a process that was forked."""
    store, path = url_to_fs(url)
    content: bytes = store.cat_file(path, start=start, end=stop)
    if start is not None and stop is not None:
        whole = start == 0 and len(content) == size  # all that a server without ranges can send
        if not content or (len(content) > stop - start and not whole):
            raise EOFError(f"{len(content):,} bytes from byte {start:,} on, where {stop - start:,} were asked for")
    return content


def _is_final(error: Exception) -> bool:
    """Whether to ask again would be of no use."""
    status = vars(error).get("status", vars(error).get("code"))  # of aiohttp and of gcsfs
    if isinstance(status, int) and 400 <= status < 500:
        return status not in _MAY_PASS
    return isinstance(error, _FOR_GOOD)
