"""The trials of a study: whose turn it is, and what dead workers have left."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from domainbert.tuning.methods import optuna_experimental

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

LOST, WORKER, ALIVE, ERROR, ORIGIN, SECONDS = "lost", "worker", "alive", "error", "origin", "seconds"
"""User attributes of a trial: why it was queued again; who runs it; a number that grows while it does; why it failed;
the trial that it goes on with, if any; how long it took."""

_RUNG = "completed_rung_"  # Optuna's record of ASHA; a trial that is run again has not got there yet
_MOST_TIMES = 4


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's warnings that a feature of it may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna_experimental())
        yield


def counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that count for the number asked for: neither those that wait nor those that were queued again."""
    from optuna.trial import TrialState

    return [one for one in trials if one.state != TrialState.WAITING and LOST not in one.user_attrs]


def take_trial(study: Study, asked: int) -> Trial | None:
    """A trial to run, or None when there are as many as were asked for, by whichever worker.

    Two workers may ask at the same moment; of the trials that both get, those with the highest numbers go back.
    """
    if len(counted(study.get_trials(deepcopy=False))) >= asked:
        return None
    trial = study.ask()
    before = [one for one in counted(study.get_trials(deepcopy=False)) if one.number < trial.number]
    if len(before) >= asked:
        from optuna.trial import TrialState

        study._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
        return None
    trial.set_user_attr(WORKER, worker_name())
    return trial


def queue_again(study: Study, trial: FrozenTrial, reason: str) -> bool:
    """Put a trial that cannot be finished back as a new one with the same values; False if another worker did.

    After some times it has failed for good: it may be what kills its workers.
    """
    import optuna
    from optuna.trial import TrialState

    storage = study._storage
    times = int(trial.user_attrs.get("times", 0)) + 1
    try:
        if times < _MOST_TIMES:
            storage.set_trial_user_attr(trial._trial_id, LOST, reason)
        else:
            storage.set_trial_user_attr(trial._trial_id, ERROR, f"{reason}, {times} times")
        if not storage.set_trial_state_values(trial._trial_id, TrialState.FAIL):
            return False
    except optuna.exceptions.UpdateFinishedTrialError:
        return False
    if times < _MOST_TIMES:
        system = {key: value for key, value in trial.system_attrs.items() if not key.startswith(_RUNG)}
        again = optuna.trial.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={ORIGIN: origin(trial), "times": times},
            system_attrs=system,
        )
        study.add_trial(again)
    return True


def origin(trial: FrozenTrial | Trial) -> int:
    """The number of the trial that this one goes on with, or its own."""
    return int(trial.user_attrs.get(ORIGIN, trial.number))


def worker_name() -> str:
    """`machine:process:start` of this process: process numbers are used again, but not with the same start."""
    return f"{machine_name()}:{os.getpid()}:{_start_of(os.getpid())}"


def machine_name() -> str:
    """Host name, and what tells one boot and one container from another where the system says it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{socket.gethostname()}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def _start_of(process: int) -> str:
    """When a process started, in clock ticks after boot; empty if it has ended, or the system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()  # proc(5): state, ..., starttime
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


class Watch:
    """Finds trials whose worker is dead.

    A worker of this machine is looked up; of any other the signs of life have to grow: what counts is that they stand
    still for `grace` seconds on this machine's clock, so clocks need not agree.

    Args:
        grace: seconds.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._seen: dict[int, tuple[int, float]] = {}

    def dead(self, trial: FrozenTrial) -> bool:
        """Whether the worker of a running trial is dead."""
        name = str(trial.user_attrs.get(WORKER, "::"))
        host, process, start = name.rsplit(":", 2)
        if host == machine_name() and start:
            return _start_of(int(process)) != start
        now, sign = time.monotonic(), int(trial.user_attrs.get(ALIVE, 0))
        before, since = self._seen.get(trial.number, (-1, now))
        if sign != before:
            self._seen[trial.number] = (sign, now)
            return False
        return now - since > self.grace
