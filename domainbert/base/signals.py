"""Signals that ask a training to stop: noted at once, obeyed at the end of the step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from domainbert.base.errors import TrainingStopped

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Make a signal of a cluster raise `TrainingStopped` at once: in stages that do not train, and before and after
    training itself; one that came when an earlier training had nothing left to stop does, too. Only a main thread can;
    in another one nothing happens."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if late := StopSignals.received:
        StopSignals.received = 0
        raise TrainingStopped(f"stopped by {signal.Signals(late).name}")
    before = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TrainingStopped(f"stopped by {signal.Signals(number).name}")


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
