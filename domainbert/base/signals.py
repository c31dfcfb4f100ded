"""Stop signals: recorded at once, handled at the end of a step or item."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from domainbert.base.errors import TrainingStopped

TRY_AGAIN = 75  # exit code of a process that can be resumed: EX_TEMPFAIL of sysexits.h
_MOST_SECONDS, _POLL_SECONDS = 20.0, 0.5
_pending = 0  # number of a signal that arrived outside of a training
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@contextmanager
def record_signals() -> Iterator[None]:
    """Record signals for `raise_if_stopped`; a signal left over from an earlier training stops the process at once.

    The handler raises no exception: this could break an import, or abort the process inside C++ code. A process that
    does not reach `raise_if_stopped` exits after 20 s, because clusters kill it after 30 s. Outside the main thread,
    which alone can handle signals, nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _stop_if(StopSignals.received)
    before = {number: signal.signal(number, _note) for number in (signal.SIGTERM, signal.SIGUSR1)}
    outermost, ended = before[signal.SIGTERM] is not _note, threading.Event()
    if outermost:
        threading.Thread(target=_watch, args=(ended,), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_stopped() -> None:
    """Raise `TrainingStopped` if a signal has arrived; to be called at the end of each item.
    Does nothing during a training, which checks signals after each step and saves its state first."""
    _stop_if(_pending if signal.getsignal(signal.SIGTERM) is _note else 0)


def _stop_if(number: int) -> None:
    global _pending
    if number:
        StopSignals.received = _pending = 0
        raise TrainingStopped(f"stopped by {signal.Signals(number).name}")


def _note(number: int, frame: FrameType | None) -> None:
    global _pending
    StopSignals.received = _pending = number


def _watch(ended: threading.Event) -> None:
    """Exit if a signal is not handled in time; runs in its own thread, which a handler cannot start safely."""
    seconds = 0.0
    while not ended.wait(_POLL_SECONDS):
        unhandled = _pending and signal.getsignal(signal.SIGTERM) is _note
        seconds = seconds + _POLL_SECONDS if unhandled else 0.0
        if seconds >= _MOST_SECONDS:
            os._exit(TRY_AGAIN)


class StopSignals:
    """Stores a signal until it is handled; a second Ctrl-C ends the process at once.
    A signal in the last step of a training stops the process before its next stage."""

    received = 0  # number of the signal

    def install(self) -> None:
        """Handle the signals from now on."""
        for number in STOPPING:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == self.received == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        StopSignals.received = number

    def obey(self) -> None:
        """Clear the signal after it has been handled."""
        StopSignals.received = 0


def ignore_stop_signals(worker: int) -> None:
    """Ignore signals in a data loader's worker: it ends with the training process, not by a signal to the group."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
