"""Small files that are there as a whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.redact import redact


def disk_full(error: BaseException) -> str:
    """That a write failed for want of room, in the system's words; empty where it failed for another reason.

    Libraries that write by themselves raise errors of their own, in which the system's words stand.
    """
    reasons = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)]
    return next((reason for reason in reasons if reason in str(error)), "")


@contextmanager
def told_if_full(folder: Path) -> Iterator[None]:
    """While files are written below a folder: that the disk is full is a `DomainbertError`."""
    try:
        yield
    except OSError as error:
        reason = disk_full(error)
        if not reason:
            raise
        free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
        raise DomainbertError(f"{error.filename or folder}: {reason}: {free:,} bytes are free") from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that it is either there as a whole or not at all; secrets are left out (see `redact`)."""
    write_text(path, json.dumps(redact(value), indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, its line ends as they are, so that it is either there as a whole or not at all.

    Processes of several machines may write the same file: the name that it has before holds host and process.
    """
    temporary = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # its name would be used again by chance only
        temporary.unlink(missing_ok=True)
        raise
