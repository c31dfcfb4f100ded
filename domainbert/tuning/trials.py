"""Open the storage of a study (SQLite, or another database of SQLAlchemy), and queue the trials of dead workers again.

Passwords come from the environment (`DOMAINBERT_STORAGE_URL`, `PGPASSWORD`) or from ~/.pgpass.
"""

from __future__ import annotations

import copy
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy
from optuna import Study
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from domainbert.base.errors import DomainbertError
from domainbert.base.redact import redact
from domainbert.tuning.config import STORAGE_URL_VARIABLE, StorageConfig

WORKER, ERROR, SECONDS, SETTINGS, THREADS, VALUES = "worker", "error", "seconds", "settings", "threads", "values"
"""User attributes of a trial: worker, reason for a failure or retry, duration, settings of the stage, number of threads
if it is set, and values of the objectives, which reveal a change of Optuna's own copy."""

DIED = "its worker died"
_MAX_RETRIES = 3
_MAX_ATTEMPTS, _ATTEMPT_SECONDS = 5, 0.5
_SQLITE_OPTIONS = {"connect_args": {"timeout": 60}}  # seconds to wait for another worker's transaction
_MAX_WAIT_SECONDS, _RETRY_SECONDS = 300.0, 2.0
_RUNG = "completed_rung_"  # prefix of system attributes of ASHA: the rungs that a trial has reached


# Optuna calls retries, heartbeats and some samplers experimental
warnings.filterwarnings("ignore", category=ExperimentalWarning)
warnings.filterwarnings("ignore", message="Heartbeat of storage")


class Retry(RetryHeartbeatStaleTrialCallback):
    """Queue a trial again with the same values, but without user attributes and completed rungs of ASHA.

    The new trial is a separate trial for Optuna, linked to the failed attempt by system attributes.
    """

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Add a waiting trial with the values of `trial` to the study."""
        retry = copy.deepcopy(trial)
        retry.user_attrs = {}
        retry.system_attrs = {key: value for key, value in trial.system_attrs.items() if not key.startswith(_RUNG)}
        super().__call__(study, retry)


def open_storage(config: StorageConfig, out: Path, environment: Mapping[str, str] = os.environ) -> RDBStorage:
    """Return the database; create it if it does not exist.

    Opening is repeated after an error: it fails, for example, if several workers create the tables at once. A missing
    driver is reported at once.

    Raises:
        DomainbertError: the database cannot be reached, or its driver is not installed; no message has a password.
    """
    out.mkdir(parents=True, exist_ok=True)
    # not from a text, in which `?`, `%` and `@` of a folder name would have a meaning
    default = sqlalchemy.URL.create("sqlite", database=str((out / "study.db").resolve()))
    text = environment.get(STORAGE_URL_VARIABLE) or config.url
    url = _read_url(text) if text else default
    for attempt in range(_MAX_ATTEMPTS):
        time.sleep(_ATTEMPT_SECONDS * attempt)
        try:
            return RDBStorage(
                url.render_as_string(hide_password=False),
                engine_kwargs=_SQLITE_OPTIONS if url.get_backend_name() == "sqlite" else {"pool_pre_ping": True},
                heartbeat_interval=config.heartbeat,
                grace_period=config.grace,
                heartbeat_stale_trial_callback=Retry(max_retry=_MAX_RETRIES),
            )
        except (SQLAlchemyError, RuntimeError, ImportError) as error:
            failure = str(redact(str(getattr(error, "orig", None) or error))).strip().partition("\n")[0]
            if isinstance(error, ImportError):
                break
    name = STORAGE_URL_VARIABLE if environment.get(STORAGE_URL_VARIABLE) else "storage.url"
    raise DomainbertError(
        f"cannot open {redact(url.render_as_string())} ({failure})", where="storage", hint=f"check {name}"
    )


def _read_url(text: str) -> sqlalchemy.URL:
    """Use the driver psycopg for PostgreSQL. Errors do not quote the URL, which may contain a password."""
    # sqlalchemy takes the text after the first @ for the host, which error messages would show
    if text.partition("://")[2].count("@") > 1:
        raise DomainbertError("the password in the URL contains '@'", where="storage", hint="write %40 in place of it")
    url = None
    # raised below, outside `except`: these errors contain parts of the URL, and even `from None` keeps `__context__`
    with suppress(ArgumentError, ValueError):
        url = sqlalchemy.make_url(text.replace("postgres://", "postgresql://", 1))
    if url is None:
        raise DomainbertError("the URL is invalid", where="storage", expected="DIALECT://USER@HOST:PORT/DATABASE")
    return url.set(drivername="postgresql+psycopg") if url.get_backend_name() == "postgresql" else url


class StorageWait:
    """Wait for at most `seconds` while the storage cannot be reached, for example while a database restarts.

    Print a line when the wait begins, and a line when the storage is available again.
    """

    def __init__(self, seconds: float = _MAX_WAIT_SECONDS) -> None:
        self.seconds = seconds
        self._lost_since: float | None = None

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise `error` if the storage has been lost for too long."""
        if self._lost_since is None:
            self._lost_since = time.monotonic()
            minutes = f"{self.seconds / 60:.0f} minutes"
            print(f"storage: connection lost ({failure_reason(error)}); trying again for {minutes}", flush=True)
        if time.monotonic() - self._lost_since > self.seconds:
            raise error
        time.sleep(_RETRY_SECONDS)

    def end(self) -> None:
        """End the wait: the storage is available again."""
        if self._lost_since is not None:
            print("storage: connected again", flush=True)
        self._lost_since = None


def failure_reason(error: Exception) -> str:
    """Return the first line of the cause of a storage error, or of the error itself if there is no cause."""
    return str(error.__cause__ or error).strip().partition("\n")[0]


def queue_again(study: Study, trial: Trial | FrozenTrial, reason: str) -> None:
    """Mark a running trial as failed, and add a waiting trial with the same values. `reason` is recorded for a trial of
    this worker. A `FrozenTrial` cannot get a reason: the default is `DIED`."""
    if isinstance(trial, Trial):
        trial.set_user_attr(ERROR, reason)
    try:
        study.tell(trial.number, state=TrialState.FAIL)
    except ValueError:  # another worker has queued it again
        return
    Retry()(study, study.get_trials(deepcopy=False)[trial.number])


def requeued_numbers(trials: Sequence[FrozenTrial]) -> set[int]:
    """Return the numbers of the failed attempts that were queued again as a new trial."""
    return {number for trial in trials for number in Retry.retry_history(trial)}


def counted_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count towards the setting `trials`: started, and not queued again."""
    numbers = requeued_numbers(trials)
    return [trial for trial in trials if trial.state != TrialState.WAITING and trial.number not in numbers]


def number_without_retries(study: Study, number: int) -> int:
    """Return the number of a trial in a study without retries; a retry has the number of its first attempt."""
    trials = study.get_trials(deepcopy=False)  # numbered from 0 without gaps
    first_number = original_number(trials[number])
    return first_number - sum(original_number(trial) != trial.number for trial in trials[:first_number])


def original_number(trial: FrozenTrial) -> int:
    """Return the number of the first attempt of a trial."""
    first_number = Retry.retried_trial_number(trial)
    return trial.number if first_number is None else first_number


def record_heartbeat(storage: RDBStorage, trial: Trial) -> None:
    """Record in the storage that the worker of a trial is alive."""
    storage.record_heartbeat(trial._trial_id)


def is_orphan(trial: FrozenTrial, grace: float) -> bool:
    """Return whether the worker of a trial died before it recorded its name: there is no name after `grace` seconds."""
    started = trial.datetime_start
    is_over = started is not None and datetime.now() - started > timedelta(seconds=grace)
    return is_over and WORKER not in trial.user_attrs


def worker_name() -> str:
    """Return the name of this worker, `machine:process`."""
    return f"{socket.gethostname()}:{os.getpid()}"
