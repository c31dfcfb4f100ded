"""Number of processor cores."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Return the number of cores that this process may use: a job scheduler may allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
