"""Main memory: the C library's allocator, set for training, and how much is free."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h of glibc
_NEVER = 2**31 - 1
_SYSTEM, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def keep_freed_memory() -> None:
    """Let glibc keep what tensors free instead of handing it back to the system.

    A training step on a CPU allocates and frees the same large tensors every time; otherwise each step pays anew for
    the page faults, about 15 % of it. Where the C library is another one, nothing happens.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, _NEVER)


def available_memory() -> int | None:
    """Bytes that processes may still take, of the machine and of the control group (a container's limit); None where
    the system does not say so, which is anywhere but on Linux."""
    if not _SYSTEM.is_file():
        return None
    lines = (line.split() for line in _SYSTEM.read_text(encoding="ascii").splitlines())
    free = next((int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"), None)
    limit, used = _GROUP / "memory.max", _GROUP / "memory.current"
    if free is None or not (limit.is_file() and used.is_file()):
        return free
    most = limit.read_text(encoding="ascii").strip()
    return free if most == "max" else min(free, int(most) - int(used.read_text(encoding="ascii")))
