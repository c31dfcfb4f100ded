"""Processor time and memory of a process together with all that it started."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def cpu_seconds_of_tree() -> float:
    """User and system time of this process and of all below it, those that ended and were waited for included."""
    ended = os.times()
    total = time.process_time() + ended.children_user + ended.children_system
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it ended just now
            total += sum(process.cpu_times()[:4])  # user, system, and both of its own children that ended
    return total


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below the process `pid`; none if it has ended."""
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill the processes; a process that has ended is left alone, even if its number is in use again."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def peak_memory_bytes() -> int:
    """The highest resident memory that this process alone has had so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # `ru_maxrss` counts what the parent had when it started this process, too
        lines = (line.split() for line in status.read_text().splitlines())
        return next(int(line[1]) * 1024 for line in lines if line[0] == "VmHWM:")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class PeakMemory:
    """The highest memory that was seen of a process and all below it; short peaks between two looks are missed."""

    def __init__(self) -> None:
        self._peak: Counter[str] = Counter()

    def sample(self, pid: int | None) -> None:
        """Look once at the process `pid` and all below it."""
        now: Counter[str] = Counter()
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                now.update(_memory(one))
        self._peak |= now

    def as_dict(self) -> dict[str, int]:
        """Numbers that were seen, empty if nothing was sampled.

        `peak_tree_memory_bytes` is resident memory, mapped files included; `peak_tree_anonymous_bytes` leaves out the
        pages of files, which the system may take back at any time. On Linux both count a page that n processes share as
        1/n for each (PSS); elsewhere only the former is known, and counts it for each in full.
        """
        return dict(self._peak)


def _memory(process: psutil.Process) -> dict[str, int]:
    if sys.platform != "linux":
        return {"peak_tree_memory_bytes": process.memory_info().rss}
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as file:
            fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if line.startswith("Pss")}
    except OSError:  # it ended just now
        return {}
    shared = fields.get("Pss_Shmem", 0)
    return {
        "peak_tree_memory_bytes": fields.get("Pss", 0),
        "peak_tree_anonymous_bytes": fields.get("Pss_Anon", 0) + shared,
    }
