"""The trials of a study: those that count, and those that are queued again."""

from __future__ import annotations

import copy
import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from optuna import Study
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, Trial, TrialState

WORKER, ERROR, SECONDS, SETTINGS, THREADS = "worker", "error", "seconds", "settings", "threads"
"""User attributes of a trial: its worker; why it failed or was queued again; its seconds; the stage's settings, and the
threads where they are set."""

DIED = "its worker died"
_MOST_RETRIES = 3
_RUNG = "completed_rung_"  # system attributes of ASHA: the rungs that a trial has reached


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's warnings that a feature may change, and that heartbeats are not recorded by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", message="Heartbeat of storage")
        yield


class Retry(RetryHeartbeatStaleTrialCallback):
    """Queues a trial again with the same values, without attributes of its run; ASHA starts it from the beginning."""

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Add a waiting trial to the study."""
        again = copy.deepcopy(trial)
        again.user_attrs = {}
        again.system_attrs = {key: one for key, one in trial.system_attrs.items() if not key.startswith(_RUNG)}
        super().__call__(study, again)


def retry_of_stale_trials() -> Retry:
    """Return the callback for trials whose heartbeat stops; the fourth death of a worker is a failure of the trial."""
    with quiet():
        return Retry(max_retry=_MOST_RETRIES)


def queue_again(study: Study, trial: Trial | FrozenTrial, reason: str) -> None:
    """End a running trial, and add a waiting one with the same values."""
    with quiet():
        if isinstance(trial, Trial):
            trial.set_user_attr(ERROR, reason)
        study.tell(trial.number, state=TrialState.FAIL)
        Retry()(study, study.get_trials(deepcopy=False)[trial.number])


def lost(trials: Sequence[FrozenTrial]) -> set[int]:
    """Numbers of the trials that were queued again."""
    with quiet():
        return {number for trial in trials for number in Retry.retry_history(trial)}


def counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that count towards `trials`: all that have begun and were not queued again."""
    numbers = lost(trials)
    return [trial for trial in trials if trial.state != TrialState.WAITING and trial.number not in numbers]


def place(study: Study, number: int) -> int:
    """The number of a trial if none had been queued again."""
    return number - sum(one < number for one in lost(study.get_trials(deepcopy=False)))


def origin(trial: FrozenTrial) -> int:
    """The number of the trial that this one resumes, or its own."""
    with quiet():
        first = Retry.retried_trial_number(trial)
    return trial.number if first is None else first


def record_heartbeat(storage: RDBStorage, trial: Trial) -> None:
    """Record that the worker of a trial is alive."""
    storage.record_heartbeat(trial._trial_id)


def is_orphan(trial: FrozenTrial, grace: float) -> bool:
    """Whether a worker was lost between the start of a trial and its first heartbeat."""
    started = trial.datetime_start
    return (
        WORKER not in trial.user_attrs and started is not None and datetime.now() - started > timedelta(seconds=grace)
    )


def worker_name() -> str:
    """`machine:process` of this process."""
    return f"{socket.gethostname()}:{os.getpid()}"
