"""Trials of a study: queue dead trials again, and count the trials without retries."""

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
"""User attributes of a trial: worker, reason for a failure or retry, duration, settings of the stage, and number of
threads if it is set."""

DIED = "its worker died"
_MAX_RETRIES = 3
_RUNG = "completed_rung_"  # prefix of system attributes of ASHA: the rungs that a trial has reached


@contextmanager
def silence_optuna() -> Iterator[None]:
    """Context manager that silences Optuna's warnings about experimental features and about heartbeats."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", message="Heartbeat of storage")
        yield


class Retry(RetryHeartbeatStaleTrialCallback):
    """Queue a trial again with the same values, but without user attributes and completed rungs of ASHA."""

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Add a waiting trial with the values of `trial` to the study."""
        retry = copy.deepcopy(trial)
        retry.user_attrs = {}
        retry.system_attrs = {key: value for key, value in trial.system_attrs.items() if not key.startswith(_RUNG)}
        super().__call__(study, retry)


def stale_trial_callback() -> Retry:
    """Return the callback for trials whose heartbeat stops: it queues a trial again, at most three times."""
    with silence_optuna():
        return Retry(max_retry=_MAX_RETRIES)


def queue_again(study: Study, trial: Trial | FrozenTrial, reason: str) -> None:
    """Mark a running trial as failed, and add a waiting trial with the same values."""
    with silence_optuna():
        if isinstance(trial, Trial):
            trial.set_user_attr(ERROR, reason)
        study.tell(trial.number, state=TrialState.FAIL)
        Retry()(study, study.get_trials(deepcopy=False)[trial.number])


def requeued_numbers(trials: Sequence[FrozenTrial]) -> set[int]:
    """Return the numbers of the attempts that were queued again as a new trial."""
    with silence_optuna():
        return {number for trial in trials for number in Retry.retry_history(trial)}


def counted_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count towards the setting `trials`: started, and not queued again."""
    numbers = requeued_numbers(trials)
    return [trial for trial in trials if trial.state != TrialState.WAITING and trial.number not in numbers]


def number_without_retries(study: Study, number: int) -> int:
    """Return the number of a trial, not counting the earlier trials that were queued again."""
    return number - sum(requeued < number for requeued in requeued_numbers(study.get_trials(deepcopy=False)))


def original_number(trial: FrozenTrial) -> int:
    """Return the number of the first attempt of a trial."""
    with silence_optuna():
        first = Retry.retried_trial_number(trial)
    return trial.number if first is None else first


def record_heartbeat(storage: RDBStorage, trial: Trial) -> None:
    """Record that the worker of a trial is alive."""
    storage.record_heartbeat(trial._trial_id)


def is_orphan(trial: FrozenTrial, grace: float) -> bool:
    """Return whether the worker of a trial died before it recorded its name.

    Decided `grace` seconds after the start.
    """
    started = trial.datetime_start
    return (
        WORKER not in trial.user_attrs and started is not None and datetime.now() - started > timedelta(seconds=grace)
    )


def worker_name() -> str:
    """Return the name of this worker, `machine:process`."""
    return f"{socket.gethostname()}:{os.getpid()}"
