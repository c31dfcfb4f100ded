"""The database of a study: SQLite, or any other that SQLAlchemy reaches; waiting for a lost one.

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
from domainbert.tuning.trials import quiet, retry_of_stale_trials

_TRIES, _WAIT_SECONDS = 5, 0.5
_SQLITE = {"connect_args": {"timeout": 60}}  # seconds to wait for another worker's transaction
_PATIENCE_SECONDS, _AGAIN_SECONDS = 300.0, 2.0


def open_storage(config: StorageConfig, out: Path, environment: Mapping[str, str] = os.environ) -> RDBStorage:
    """Open the database, or create it. Several workers may create its tables at once: those that fail find them at the
    next try.

    Raises:
        DomainbertError: it cannot be reached, or its driver is not installed; no message holds a password.
    """
    out.mkdir(parents=True, exist_ok=True)
    url = _read_url(environment.get(URL) or config.url or f"sqlite:///{(out / 'study.db').resolve()}")
    for number in range(_TRIES):
        try:
            with quiet():
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
    raise DomainbertError(f"storage: {redact(url.render_as_string())} cannot be used: {failure}")


def _read_url(text: str) -> sqlalchemy.URL:
    """The URL of a database; psycopg 3 is the driver of PostgreSQL."""
    if text.partition("://")[2].count("@") > 1:  # what follows the first would be taken for the host, and shown
        raise DomainbertError("storage: the password holds an @; expected %40")
    url = None
    with suppress(ArgumentError, ValueError):  # whose texts hold parts of it
        url = sqlalchemy.make_url(text.replace("postgres://", "postgresql://", 1))
    if url is None:
        raise DomainbertError("storage: the URL cannot be read; expected dialect://user@host:port/database")
    return url.set(drivername="postgresql+psycopg") if url.get_backend_name() == "postgresql" else url


class Patience:
    """Lets a worker repeat its tries for some minutes while a storage is lost, such as a database that restarts.

    Args:
        say: called once when the wait begins, and once when the storage is back.
        seconds: the longest wait.
    """

    def __init__(self, say: Callable[[str], None], seconds: float = _PATIENCE_SECONDS) -> None:
        self.say, self.seconds = say, seconds
        self._since: float | None = None

    def wait(self, error: Exception) -> None:
        """Wait a little; raise `error`, the one of the lost storage, after too long a wait."""
        if self._since is None:
            self._since = time.monotonic()
            self.say(f"storage: was lost ({loss(error)}); trying again for {self.seconds / 60:.0f} minutes")
        if time.monotonic() - self._since > self.seconds:
            raise error
        time.sleep(_AGAIN_SECONDS)

    def answered(self) -> None:
        """Note that the storage is back."""
        if self._since is not None:
            self.say("storage: is there again")
        self._since = None


def loss(error: Exception) -> str:
    """The reason why a storage is lost, in one line."""
    return str(error.__cause__ or error).strip().partition("\n")[0]
