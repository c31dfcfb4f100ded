"""Number of processor cores."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Number of cores that this process may use, for example under a job scheduler."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
