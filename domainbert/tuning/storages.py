"""Storages of a study: SQLite, PostgreSQL, or a journal file on a shared disk; their locks; waiting for a lost one.

Passwords come from the environment (`DOMAINBERT_STORAGE_URL`, `PGPASSWORD`), from ~/.pgpass, or from a file.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from domainbert.base.errors import DomainbertError
from domainbert.base.redact import redact
from domainbert.tuning.config import URL, StorageConfig

_TRIES, _WAIT_SECONDS = 5, 0.5
_SHOWN = 40  # characters of a line in a message
_SQLITE_TIMEOUT = 60  # seconds to wait for another worker's transaction
_PATIENCE_SECONDS, _AGAIN_SECONDS = 300.0, 2.0


def open_storage(config: StorageConfig, out: Path, environment: Mapping[str, str] = os.environ) -> BaseStorage:
    """The storage, made if there is none yet.

    Raises:
        DomainbertError: it cannot be reached, its driver is not installed, or a journal cannot be read; no message
            holds a password.
    """
    if config.kind == "postgresql":
        return _open_database(_driver(_database_url(config, environment)), {"pool_pre_ping": True})
    path = _path(config, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    if config.kind == "journal":
        return _open_journal(path)
    return _open_database(f"sqlite:///{path.resolve()}", {"connect_args": {"timeout": _SQLITE_TIMEOUT}})


def _path(config: StorageConfig, out: Path) -> Path:
    return Path(config.path or out / f"study.{'db' if config.kind == 'sqlite' else 'journal'}")


def _database_url(config: StorageConfig, environment: Mapping[str, str]) -> str:
    """The URL of the database, with its password if it has one: never print it."""
    if config.url_file is not None:
        if config.url_file.stat().st_mode & 0o077:
            raise DomainbertError(f"{config.url_file}: others may read it; expected mode 0600 (chmod 600)")
        return config.url_file.read_text(encoding="utf-8").strip()
    url = environment.get(URL) or config.url
    if not url:
        raise DomainbertError(f"storage: no database is named; expected url, url_file, or {URL} in the environment")
    return url


def _driver(url: str) -> str:
    """The URL for psycopg 3, however the dialect was written."""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise DomainbertError("storage: the URL is not one of PostgreSQL; expected postgresql://user@host/database")
    if rest.count("@") > 1:  # what follows the first would be taken for the host, and shown
        raise DomainbertError("storage: the password holds an @; expected %40")
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise DomainbertError("storage: psycopg is not installed; pip install 'domainbert[postgresql]'") from error
    return f"postgresql+psycopg://{rest}"


def _open_database(text: str, engine: Mapping[str, Any]) -> BaseStorage:
    """Open a database. Several workers may create its tables at once: those that fail find them at the next try."""
    url = None
    with suppress(ArgumentError, ValueError):  # whose texts hold parts of it
        url = sqlalchemy.make_url(text)
    if url is None:
        raise DomainbertError("storage: the URL cannot be read; expected postgresql://user@host:port/database")
    for number in range(_TRIES):
        try:
            return RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=dict(engine))
        except (SQLAlchemyError, RuntimeError) as error:
            failure = str(redact(str(getattr(error, "orig", None) or error))).strip().partition("\n")[0]
        time.sleep(_WAIT_SECONDS * (number + 1))
    raise DomainbertError(f"storage: {redact(url.render_as_string())} cannot be used: {failure}")


def _open_journal(path: Path) -> BaseStorage:
    """Optuna's journal with one change. A line that a killed worker has not finished is cut off: once another line
    followed it, the rest of the file would be unreadable."""

    class WholeLines(JournalFileBackend):
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            """All of them or, after a crash, the first ones."""
            lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
            lock.acquire()
            try:
                with open(path, "r+b") as file:
                    file.truncate(_end_of_lines(file))
                    file.seek(0, os.SEEK_END)
                    file.write(lines.encode())
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                lock.release()

        def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
            try:
                for entry in super().read_logs(log_number_from):
                    if not _is_entry(entry):
                        _check_journal(path)
                    yield entry
            except (ValueError, RecursionError):
                _check_journal(path)
                raise

    lock = JournalFileOpenLock(str(path))
    if path.exists():
        _check_journal(path)
    try:
        return JournalStorage(WholeLines(str(path), lock))
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise DomainbertError(
            f"{path}: its entries contradict each other ({error!r}); expected the journal of a search: restore it, or "
            "begin a new one"
        ) from error


def _is_entry(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("op_code"), int)


def _check_journal(path: Path) -> None:
    """Check that every complete line is an entry; Optuna skips a broken line only if it is the last."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                readable = not line.endswith(b"\n") or _is_entry(json.loads(line))
            except (ValueError, RecursionError):
                readable = False
            if not readable:
                found = line[:_SHOWN].decode(errors="replace").rstrip()
                raise DomainbertError(
                    f"{path}:{number}: not an entry of a journal ({found!r}); expected a JSON object per line: remove "
                    "the line and those behind it to go on without them"
                )


def _end_of_lines(file: Any) -> int:
    """Bytes up to and with the last line feed."""
    size: int = file.seek(0, os.SEEK_END)
    block = 4096
    for start in range(max(size - block, 0), -block, -block):
        file.seek(max(start, 0))
        found: int = file.read(min(block, size)).rfind(b"\n")
        if found >= 0:
            return max(start, 0) + found + 1
    return 0


def folder_lock(out: Path) -> AbstractContextManager[None]:
    """The lock held while a worker writes results into the folder of the study."""
    return _file_lock(out / ".lock")


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """A lock for one process at a time, among all machines that share a disk with file locks (fcntl)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


@contextmanager
def study_lock(config: StorageConfig, storage: BaseStorage, study: str, out: Path) -> Iterator[None]:
    """The lock held while a trial is taken and drawn, or queued again: each takes several queries to the storage.

    Raises:
        optuna.exceptions.StorageInternalError: the database was lost.
    """
    if config.kind == "postgresql":
        with _database_lock(storage, study):
            yield
    else:
        path = _path(config, out)
        with _file_lock(path.with_name(f"{path.name}.turn")):  # Optuna has a `.lock` of its own beside a journal
            yield


@contextmanager
def _database_lock(storage: BaseStorage, study: str) -> Iterator[None]:
    """A lock that is released when the transaction ends, or when its process dies."""
    assert isinstance(storage, RDBStorage)
    lock = sqlalchemy.text("select pg_advisory_xact_lock(hashtext(:study))")
    try:
        with storage.engine.begin() as connection:
            connection.execute(lock, {"study": f"domainbert {study}"})
            yield
    except SQLAlchemyError as error:
        raise StorageInternalError("the lock of the study was lost") from error


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
