"""This process: its rank (from environment variables only), its processor cores, and the signals that stop it.

Free of torch. A signal is recorded at once and handled at the end of a step or item.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from domainbert.base.errors import DomainbertError, TrainingStopped

LAUNCH = "DOMAINBERT_LAUNCH"  # set while a stage runs: the same text in all processes that the stage starts

# Variables that identify a launch of domainbert, torchrun, SLURM or Lightning; a set applies if its first one is set.
_LAUNCH_VARIABLES = (
    (LAUNCH,),
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ("MASTER_ADDR", "MASTER_PORT"),
)


def read_number(environment: Mapping[str, str], name: str, default: str = "", low: int = 0) -> int:
    """Return the integer in an environment variable; raise `DomainbertError` for another value, or below `low`."""
    text = environment.get(name, default)
    if not text.isdecimal() or int(text) < low:
        raise DomainbertError(
            where=f"environment variable {name}", found=f"{text!r:.80}", expected=f"an integer from {low}"
        )
    return int(text)


def process_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the rank of this process among all processes of one command; 0 for a single process.

    torchrun sets RANK, srun sets SLURM_PROCID. If Lightning starts the processes of a machine, only NODE_RANK and
    LOCAL_RANK are set: a number above 0 then only means that this is not the first process.
    """
    if "RANK" in environment:
        return read_number(environment, "RANK")
    if "SLURM_PROCID" in environment and _task_of_srun(environment):
        return read_number(environment, "SLURM_PROCID")
    return read_number(environment, "NODE_RANK", "0") + read_number(environment, "LOCAL_RANK", "0")


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the rank of this process on its machine; 0 for a single process."""
    if "LOCAL_RANK" in environment:
        return read_number(environment, "LOCAL_RANK")
    return read_number(environment, "SLURM_LOCALID", "0") if _task_of_srun(environment) else 0


def call_glibc(function: str, *arguments: int) -> None:
    """Call a function of glibc; do nothing with another C library."""
    import ctypes  # only a training needs it, and each command would load it

    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "gnu_get_libc_version"):
        getattr(libc, function)(*arguments)


def launched_by_domainbert(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a stage of domainbert started this process, not torchrun, SLURM or the user."""
    return LAUNCH in environment and process_rank(environment) > 0


def launched_externally(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun or srun started all processes; otherwise a stage starts the others of this machine."""
    return "LOCAL_WORLD_SIZE" in environment or _task_of_srun(environment)


def launched_world_size(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes that torchrun or srun started for one command; 1 without them."""
    if "LOCAL_WORLD_SIZE" in environment:
        return read_number(environment, "WORLD_SIZE", low=1)
    return read_number(environment, "SLURM_NTASKS", low=1) if _task_of_srun(environment) else 1


def _task_of_srun(environment: Mapping[str, str]) -> bool:
    # Lightning's rule: the single task of an interactive job is a shell
    return "SLURM_NTASKS" in environment and environment.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def launch_id(environment: Mapping[str, str] = os.environ) -> str:
    """Return a text that is the same in all processes of one launch and unique to it; empty for a single process."""
    for names in _LAUNCH_VARIABLES:
        if names[0] in environment:  # the first variable tells whether the set applies
            return " ".join(environment.get(name, "") for name in names)
    return ""


def num_cores() -> int:
    """Return the number of cores that this process may use: a job scheduler may allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


TRY_AGAIN = 75  # exit code of a process that can be resumed: EX_TEMPFAIL of sysexits.h
_MAX_SECONDS, _POLL_SECONDS = 20.0, 0.5  # from a signal with a deadline to the exit; between two checks
_pending, _pending_since = 0, 0.0  # signal with a deadline, 0 without any; when the first such signal arrived
record_stop: list[Callable[[str], str]] = []
"""Function of the running stage that records the reason of a stop, and returns the message for the user."""
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # signals that stop a training


@contextmanager
def record_signals() -> Iterator[None]:
    """Context manager that records SIGTERM and SIGUSR1 for `raise_if_stopped`; a signal left over from an earlier
    training raises `TrainingStopped` at once.

    The handler raises no exception: this could break an import, or abort the process inside C++ code. A process that
    does not end by itself calls `record_stop` and exits 20 s after the signal, because clusters kill it after 30 s.
    Outside the main thread, which alone can handle signals, nothing happens.
    """
    global _pending
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _raise_if_received(StopSignals.received)
    old_handlers = {number: signal.signal(number, _record_signal) for number in (signal.SIGTERM, signal.SIGUSR1)}
    nested = old_handlers[signal.SIGTERM] is _record_signal  # inside another `with record_signals()`
    ended = threading.Event()
    if not nested:
        threading.Thread(target=_exit_if_unhandled, args=(ended,), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        if not nested:
            _pending = 0  # the deadline ends, too
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
    global _pending, _pending_since
    _pending_since = _pending_since if _pending else time.monotonic()
    StopSignals.received = _pending = signal_number


def _seconds_left() -> float:
    """Return the seconds until this process must exit, whichever handler is installed; infinity without a signal."""
    return _pending_since + _MAX_SECONDS - time.monotonic() if _pending else float("inf")


def _exit_if_unhandled(ended: threading.Event) -> None:
    """Exit the process `_MAX_SECONDS` after a signal with a deadline; return after `ended` is set. Runs in a thread
    that is started in advance, because a signal handler cannot start a thread safely."""
    while not ended.wait(_POLL_SECONDS):
        if (number := _pending) and _seconds_left() < _POLL_SECONDS:
            message = f"stopped by {signal.Signals(number).name}"
            try:
                for record in record_stop:
                    message = record(message)
                sys.stderr.write(f"domainbert: {message}\n")
            finally:  # also if the reader of stderr has ended
                os._exit(TRY_AGAIN)


class StopSignals:
    """Stores a signal until it is handled; a second Ctrl-C ends the process at once.
    A signal in the last step of a training stops the process before its next stage."""

    received = 0  # number of the signal, shared by all instances; 0 without any
    has_deadline = False  # whether the process must exit 20 s after SIGTERM or SIGUSR1: a training has nothing to save

    def install(self) -> None:
        """Set the handler of all signals in `STOPPING`."""
        for number in STOPPING:
            signal.signal(number, self._handle_signal)

    def _handle_signal(self, signal_number: int, frame: FrameType | None) -> None:
        if signal_number == self.received == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        if self.has_deadline and signal_number != signal.SIGINT:
            _record_signal(signal_number, frame)
        StopSignals.received = signal_number

    def clear(self) -> None:
        """Clear the signal after it has been handled."""
        StopSignals.received = 0


def ignore_stop_signals(worker: int) -> None:
    """Ignore the signals in `STOPPING` in a data loader's worker, which ends with the training process, not by a signal
    to the process group; `worker` is its unused number."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
