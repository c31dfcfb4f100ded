"""The trials of a study: the next one to run, and those of dead workers."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from optuna import Study
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from domainbert.tuning import optuna_internals

LOST, WORKER, ALIVE, ERROR, ORIGIN, SECONDS = "lost", "worker", "alive", "error", "origin", "seconds"
SETTINGS, THREADS = "settings", "threads"
"""User attributes of a trial: why it was queued again; its worker; a number that grows while it runs; why it failed;
the trial that it resumes, if any; how long it took; the stage's settings, and its threads where they are set."""

_DEATHS, _MOST_DEATHS = "deaths", 4


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's warnings that one of its features may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def is_lost(trial: FrozenTrial) -> bool:
    """Whether a trial was queued again, as a new trial."""
    return trial.state.name == "FAIL" and LOST in trial.user_attrs


def counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that count towards the number asked for: not those that wait, nor those that were queued again."""
    return [one for one in trials if one.state != TrialState.WAITING and not is_lost(one)]


def take_trial(study: Study, asked: int) -> Trial | None:
    """A trial to run, or None if there are enough; under the lock of the study."""
    if len(counted(study.get_trials(deepcopy=False))) >= asked:
        return None
    trial = study.ask()
    trial.set_user_attr(WORKER, worker_name())
    return trial


def place(study: Study, trial: Trial) -> int:
    """The number of a trial if none had been queued again."""
    before = [one for one in study.get_trials(deepcopy=False) if one.number < trial.number]
    return trial.number - sum(map(is_lost, before))


def queue_again(study: Study, trial: FrozenTrial, reason: str, blame: bool = False) -> bool:
    """Put a trial that cannot be finished back as a new one with the same values; under the lock of the study.

    With `blame`, it may have killed its worker: after some such deaths it has failed finally. Returns False if the
    trial has ended meanwhile, or another worker was first.
    """
    deaths = int(trial.user_attrs.get(_DEATHS, 0)) + blame
    for_good = deaths >= _MOST_DEATHS
    try:
        name, text = (ERROR, f"{reason}, {deaths} times") if for_good else (LOST, reason)
        optuna_internals.set_attribute(study, trial, name, text)
        if not optuna_internals.set_state(study, trial, TrialState.FAIL):
            return False
    except UpdateFinishedTrialError:
        return False
    if not for_good:
        again = create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={ORIGIN: origin(trial), _DEATHS: deaths},
            system_attrs=optuna_internals.without_rungs(trial.system_attrs),
        )
        study.add_trial(again)
    return True


def origin(trial: FrozenTrial | Trial) -> int:
    """The number of the trial that this one resumes, or its own."""
    return int(trial.user_attrs.get(ORIGIN, trial.number))


def worker_name() -> str:
    """`machine:process:start` of this process: process numbers are reused, but not with the same start."""
    return f"{machine_name()}:{os.getpid()}:{_start_of(os.getpid())}"


def machine_name() -> str:
    """Host name, with ids of the boot and of the container if the system gives them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{socket.gethostname()}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def _start_of(process: int) -> str:
    """The start of a process in clock ticks after boot; empty if it has ended, or the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()  # proc(5): state, ..., starttime
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


class Watch:
    """Finds trials whose worker is dead.

    A worker of this machine is looked up by its process. A worker of another machine is dead if its signs of life do
    not grow for `grace` seconds on this machine's clock, so clocks need not agree. While this worker itself did not
    look (suspended, or without its database), only part of the time counts: the others may have had to wait as well.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._seen: dict[int, tuple[int, float, float]] = {}

    def dead(self, trial: FrozenTrial) -> bool:
        """Whether the worker of a running trial is dead."""
        name = str(trial.user_attrs.get(WORKER, "::"))
        host, process, start = name.rsplit(":", 2)
        if host == machine_name() and start:
            return _start_of(int(process)) != start
        now, sign = time.monotonic(), int(trial.user_attrs.get(ALIVE, 0))
        before, still, looked = self._seen.get(trial.number, (-1, 0.0, now))
        still = still + min(now - looked, self.grace / 4) if sign == before else 0.0
        self._seen[trial.number] = (sign, still, now)
        return still > self.grace
