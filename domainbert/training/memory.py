"""The C library's allocator, set for training."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h of glibc
_NEVER = 2**31 - 1


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
