"""Locks for one worker at a time, where the storage itself does not keep workers apart."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from domainbert.tuning.config import StorageConfig
from domainbert.tuning.storages import storage_path

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """A lock for one process at a time, among all machines that share a disk with file locks (fcntl)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


@contextmanager
def study_lock(config: StorageConfig, storage: BaseStorage, study: str, out: Path) -> Iterator[None]:
    """The lock held while a trial is taken and drawn, or queued again: each takes several queries to the storage.

    Args:
        config: the settings with which the storage was opened.
        storage: the storage.
        study: name of the study.
        out: the folder of the study.

    Raises:
        optuna.exceptions.StorageInternalError: the database was lost.
    """
    if config.kind == "postgresql":
        with _database_lock(storage, study):
            yield
    else:
        path = storage_path(config, out)
        with file_lock(path.with_name(f"{path.name}.turn")):  # Optuna has a `.lock` of its own beside a journal
            yield


@contextmanager
def _database_lock(storage: BaseStorage, study: str) -> Iterator[None]:
    """A lock that is released when the transaction ends, or when its process dies."""
    import sqlalchemy
    from optuna.exceptions import StorageInternalError
    from optuna.storages import RDBStorage

    assert isinstance(storage, RDBStorage)
    lock = sqlalchemy.text("select pg_advisory_xact_lock(hashtext(:study))")
    try:
        with storage.engine.begin() as connection:
            connection.execute(lock, {"study": f"domainbert {study}"})
            yield
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise StorageInternalError("the lock of the study was lost") from error
