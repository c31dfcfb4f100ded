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
from domainbert.tuning.config import STORAGE_URL_VARIABLE, StorageConfig
from domainbert.tuning.trials import silence_optuna, stale_trial_callback

_MAX_ATTEMPTS, _ATTEMPT_SECONDS = 5, 0.5
_SQLITE_OPTIONS = {"connect_args": {"timeout": 60}}  # seconds to wait for another worker's transaction
_MAX_WAIT_SECONDS, _RETRY_SECONDS = 300.0, 2.0


def open_storage(config: StorageConfig, out: Path, environment: Mapping[str, str] = os.environ) -> RDBStorage:
    """Return the database, which is created if it does not exist; retry if several workers create its tables at once.

    Raises:
        DomainbertError: the database cannot be reached, or its driver is not installed; no message has a password.
    """
    out.mkdir(parents=True, exist_ok=True)
    url = _read_url(environment.get(STORAGE_URL_VARIABLE) or config.url or f"sqlite:///{(out / 'study.db').resolve()}")
    for attempt in range(_MAX_ATTEMPTS):
        try:
            with silence_optuna():
                return RDBStorage(
                    url.render_as_string(hide_password=False),
                    engine_kwargs=_SQLITE_OPTIONS if url.get_backend_name() == "sqlite" else {"pool_pre_ping": True},
                    heartbeat_interval=config.heartbeat,
                    grace_period=config.grace,
                    heartbeat_stale_trial_callback=stale_trial_callback(),
                )
        except (SQLAlchemyError, RuntimeError, ImportError) as error:
            failure = str(redact(str(getattr(error, "orig", None) or error))).strip().partition("\n")[0]
        time.sleep(_ATTEMPT_SECONDS * (attempt + 1))
    raise DomainbertError(f"storage: cannot open {redact(url.render_as_string())}: {failure}")


def _read_url(text: str) -> sqlalchemy.URL:
    """Return the URL of a database.

    Raise a `DomainbertError` without any part of an invalid URL, which may be secret.
    """
    if text.partition("://")[2].count("@") > 1:  # the text after the first @ would be taken for the host, and printed
        raise DomainbertError("storage: the password in the URL contains @; expected %40 instead")
    url = None
    with suppress(ArgumentError, ValueError):  # their messages contain parts of the URL
        url = sqlalchemy.make_url(text.replace("postgres://", "postgresql://", 1))
    if url is None:
        raise DomainbertError("storage: the URL is invalid; expected dialect://user@host:port/database")
    return url.set(drivername="postgresql+psycopg") if url.get_backend_name() == "postgresql" else url


class StorageWait:
    """Wait for some minutes while the storage cannot be reached, for example while a database restarts.

    Args:
        print_line: prints a line when the wait begins, and a line when the storage is available again.
        seconds: maximum wait.
    """

    def __init__(self, print_line: Callable[[str], None], seconds: float = _MAX_WAIT_SECONDS) -> None:
        self.print_line, self.seconds = print_line, seconds
        self._lost_since: float | None = None

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise `error` if the storage has been lost for too long."""
        if self._lost_since is None:
            self._lost_since = time.monotonic()
            minutes = f"{self.seconds / 60:.0f} minutes"
            self.print_line(f"storage: connection lost ({failure_reason(error)}); trying again for {minutes}")
        if time.monotonic() - self._lost_since > self.seconds:
            raise error
        time.sleep(_RETRY_SECONDS)

    def end(self) -> None:
        """End the wait: the storage is available again."""
        if self._lost_since is not None:
            self.print_line("storage: connected again")
        self._lost_since = None


def failure_reason(error: Exception) -> str:
    """Return the first line of the reason for a storage error."""
    return str(error.__cause__ or error).strip().partition("\n")[0]
