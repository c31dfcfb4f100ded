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
_MAX_SECONDS, _POLL_SECONDS = 20.0, 0.5  # until a process with an unhandled signal exits; between two checks
_pending = 0  # number of a signal that arrived outside of a training and is not handled yet; 0 without any
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # signals that stop a training


@contextmanager
def record_signals() -> Iterator[None]:
    """Context manager that records SIGTERM and SIGUSR1 for `raise_if_stopped`; a signal left over from an earlier
    training raises `TrainingStopped` at once.

    The handler raises no exception: this could break an import, or abort the process inside C++ code. A process that
    does not reach `raise_if_stopped` exits after 20 s, because clusters kill it after 30 s. Outside the main thread,
    which alone can handle signals, nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _raise_if_received(StopSignals.received)
    old_handlers = {number: signal.signal(number, _record_signal) for number in (signal.SIGTERM, signal.SIGUSR1)}
    ended = threading.Event()
    if old_handlers[signal.SIGTERM] is not _record_signal:  # not inside another call
        threading.Thread(target=_exit_if_unhandled, args=(ended,), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


def raise_if_stopped() -> None:
    """Raise `TrainingStopped` if a signal has arrived; to be called at the end of each item.
    Does nothing during a training, which checks signals after each step and saves its state first."""
    _raise_if_received(_pending if signal.getsignal(signal.SIGTERM) is _record_signal else 0)


def _raise_if_received(signal_number: int) -> None:
    global _pending
    if signal_number:
        StopSignals.received = _pending = 0
        raise TrainingStopped(f"stopped by {signal.Signals(signal_number).name}")


def _record_signal(signal_number: int, frame: FrameType | None) -> None:
    global _pending
    StopSignals.received = _pending = signal_number


def _exit_if_unhandled(ended: threading.Event) -> None:
    """Exit the process if a signal is not handled in time; return after `ended` is set. Runs in its own thread, which a
    handler cannot start safely."""
    seconds = 0.0
    while not ended.wait(_POLL_SECONDS):
        unhandled = _pending and signal.getsignal(signal.SIGTERM) is _record_signal
        seconds = seconds + _POLL_SECONDS if unhandled else 0.0
        if seconds >= _MAX_SECONDS:
            os._exit(TRY_AGAIN)


class StopSignals:
    """Stores a signal until it is handled; a second Ctrl-C ends the process at once.
    A signal in the last step of a training stops the process before its next stage."""

    received = 0  # number of the signal, shared by all instances; 0 without any

    def install(self) -> None:
        """Set the handler of all signals in `STOPPING`."""
        for number in STOPPING:
            signal.signal(number, self._handle_signal)

    def _handle_signal(self, signal_number: int, frame: FrameType | None) -> None:
        """Store the signal until the next safe point; a second Ctrl-C ends the process at once."""
        if signal_number == self.received == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        StopSignals.received = signal_number

    def clear(self) -> None:
        """Clear the signal after it has been handled."""
        StopSignals.received = 0


def ignore_stop_signals(worker: int) -> None:
    """Ignore the signals in `STOPPING` in a data loader's worker, which ends with the training process, not by a signal
    to the process group; `worker` is its unused number."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
