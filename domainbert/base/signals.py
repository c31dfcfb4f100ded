"""Signals that ask a process to stop: noted at once, obeyed at the end of a step or item."""

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
_asked = 0  # number of a signal that came outside of a training
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@contextmanager
def noting_signals() -> Iterator[None]:
    """Note a signal of a cluster, for `stop_if_asked` to obey. One that an earlier training left is obeyed at once.

    An exception raised by the handler itself would end an import halfway, or abort the process in a library's C++ code.
    A process that reaches no end of an item is ended after 20 s: clusters kill it after 30 s. Only a main thread can
    handle signals; in another one nothing happens.
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


def stop_if_asked() -> None:
    """Raise `TrainingStopped` if a signal has come; called at the end of each item. Does nothing in a training, whose
    steps obey, and for a signal that came in its last step: what was trained is saved first."""
    _stop_if(_asked if signal.getsignal(signal.SIGTERM) is _note else 0)


def _stop_if(number: int) -> None:
    global _asked
    if number:
        StopSignals.received = _asked = 0
        raise TrainingStopped(f"stopped by {signal.Signals(number).name}")


def _note(number: int, frame: FrameType | None) -> None:
    global _asked
    StopSignals.received = _asked = number


def _watch(ended: threading.Event) -> None:
    """End the process if a signal stays unobeyed. The thread is there before: a handler cannot start one safely."""
    seconds = 0.0
    while not ended.wait(_POLL_SECONDS):
        waits = _asked and signal.getsignal(signal.SIGTERM) is _note
        seconds = seconds + _POLL_SECONDS if waits else 0.0
        if seconds >= _MOST_SECONDS:
            os._exit(TRY_AGAIN)


class StopSignals:
    """Remembers a signal until it is obeyed; a second Ctrl-C ends the process at once. A signal in the last step of a
    training, when nothing is left to stop, stops the process before its next stage."""

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
        """Forget the signal: it has been obeyed."""
        StopSignals.received = 0


def ignore_stop_signals(worker: int) -> None:
    """Ignore signals in a loader's worker process: it ends with the training process, not by a signal to the group."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
