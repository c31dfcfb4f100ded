"""Open the database of a study (SQLite, or another database of SQLAlchemy), and wait while the connection is lost.

Passwords come from the environment (`DOMAINBERT_STORAGE_URL`, `PGPASSWORD`) or from ~/.pgpass.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import sqlalchemy
from optuna.storages import RDBStorage
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from domainbert.base.errors import DomainbertError
from domainbert.base.redact import redact
from domainbert.tuning.config import URL, StorageConfig
from domainbert.tuning.trials import retry_of_stale_trials, silence_optuna

_TRIES, _WAIT_SECONDS = 5, 0.5
_SQLITE = {"connect_args": {"timeout": 60}}  # seconds to wait for another worker's transaction
_PATIENCE_SECONDS, _RETRY_SECONDS = 300.0, 2.0


def open_storage(config: StorageConfig, out: Path, environment: Mapping[str, str] = os.environ) -> RDBStorage:
    """Open or create the database. If several workers create its tables at the same time, some of them have to retry.

    Raises:
        DomainbertError: the database cannot be reached, or its driver is not installed; no message has a password.
    """
    out.mkdir(parents=True, exist_ok=True)
    url = _read_url(environment.get(URL) or config.url or f"sqlite:///{(out / 'study.db').resolve()}")
    for number in range(_TRIES):
        try:
            with silence_optuna():
                return RDBStorage(
                    url.render_as_string(hide_password=False),
                    engine_kwargs=_SQLITE if url.get_backend_name() == "sqlite" else {"pool_pre_ping": True},
                    heartbeat_interval=config.heartbeat,
                    grace_period=config.grace,
                    heartbeat_stale_trial_callback=retry_of_stale_trials(),
                )
        except (SQLAlchemyError, RuntimeError, ImportError) as error:
            failure = str(redact(str(getattr(error, "orig", None) or error))).strip().partition("\n")[0]
        time.sleep(_WAIT_SECONDS * (number + 1))
    raise DomainbertError(f"storage: cannot open {redact(url.render_as_string())}: {failure}")


def _read_url(text: str) -> sqlalchemy.URL:
    if text.partition("://")[2].count("@") > 1:  # the text after the first @ would be taken for the host, and printed
        raise DomainbertError("storage: the password in the URL contains @; expected %40 instead")
    url = None
    with suppress(ArgumentError, ValueError):  # their messages contain parts of the URL
        url = sqlalchemy.make_url(text.replace("postgres://", "postgresql://", 1))
    if url is None:
        raise DomainbertError("storage: the URL is invalid; expected dialect://user@host:port/database")
    return url.set(drivername="postgresql+psycopg") if url.get_backend_name() == "postgresql" else url


class Patience:
    """Wait for some minutes while the storage cannot be reached, for example while a database restarts.

    Args:
        say: prints a line when the wait begins, and a line when the storage is available again.
        seconds: maximum wait.
    """

    def __init__(self, say: Callable[[str], None], seconds: float = _PATIENCE_SECONDS) -> None:
        self.say, self.seconds = say, seconds
        self._since: float | None = None

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise `error` if the storage has been lost for too long."""
        if self._since is None:
            self._since = time.monotonic()
            minutes = f"{self.seconds / 60:.0f} minutes"
            self.say(f"storage: connection lost ({failure_reason(error)}); trying again for {minutes}")
        if time.monotonic() - self._since > self.seconds:
            raise error
        time.sleep(_RETRY_SECONDS)

    def answered(self) -> None:
        """End the wait: the storage is available again."""
        if self._since is not None:
            self.say("storage: connected again")
        self._since = None


def failure_reason(error: Exception) -> str:
    """Return the first line of the reason for a storage error."""
    return str(error.__cause__ or error).strip().partition("\n")[0]
