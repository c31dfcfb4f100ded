"""Progress of long work: a live line on a terminal, one plain line every 30 seconds in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from domainbert.base.errors import counted
from domainbert.base.process import raise_if_stopped

_TERMINAL_SECONDS = 0.2
_LOG_SECONDS = 30.0


def format_duration(seconds: float) -> str:
    """Format seconds as `15s`, `1m15s` or `2h03m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class Progress:
    """Shows the progress of `label`, its rate and, if `total` is given, the remaining time.

    On a terminal the line is rewritten in place; in a log file a line is printed every 30 s. The final line is always
    printed, except before an error. The rate ignores the first `start` units, which an earlier run has done.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        unit: str = "documents",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        start: int = 0,
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.stream, self.clock = stream or sys.stderr, clock
        self.done = self._done_before = start
        self._note: Callable[[], str] | None = None
        self._terminal = self.stream.isatty()
        self._interval = _TERMINAL_SECONDS if self._terminal else _LOG_SECONDS
        self._start = self._last = clock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def advance(self, count: int = 1, note: Callable[[], str] | None = None) -> None:
        """Count `count` more units, and print a line if the last one is old enough. `note` returns text for the end of
        the line, for example a loss. Raises `TrainingStopped` after a stop signal."""
        raise_if_stopped()
        self.done += count
        self._note = note or self._note
        now = self.clock()
        if now - self._last >= self._interval:
            self._last = now
            self._write(self._line(now), end="" if self._terminal else "\n")

    def close(self) -> None:
        """Print the final line."""
        self._write(self._line(self.clock()), end="\n")

    def abandon(self) -> None:
        """Remove the live line, before an error message."""
        if self._terminal:
            self._write("", end="")

    def _line(self, now: float) -> str:
        elapsed = max(now - self._start, 1e-9)  # never 0: the rate is divided by it
        rate = (self.done - self._done_before) / elapsed
        count = counted(self.done, self.unit)
        if self.total:
            count = f"{self.done:,}/{self.total:,} ({100 * self.done / self.total:.0f} %) {self.unit}"
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2f}"
        parts = [count, f"{speed} {self.unit}/s", format_duration(elapsed)]
        if self.total and rate and self.done < self.total:
            parts.append(f"{format_duration((self.total - self.done) / rate)} left")
        if self._note is not None:
            parts.append(self._note())
        return f"{self.label}: {', '.join(parts)}"

    def _write(self, line: str, end: str) -> None:
        self.stream.write((f"\r\x1b[K{line}" if self._terminal else line) + end)
        self.stream.flush()
