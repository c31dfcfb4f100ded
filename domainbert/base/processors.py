"""Processors of this machine."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Return the cores that this process may use, as a job scheduler has set them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
