from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from domainbert.errors import DomainbertError
from domainbert.signals import StopSignals
from domainbert.tuning import storages
from domainbert.tuning.config import StorageConfig
from domainbert.tuning.storages import URL, Patience, open_storage


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:first@tail@nohost.invalid/db", "storage: the password holds an @; expected %40"),
        ("postgresql://me:first@ss:tail@nohost.invalid/db", "storage: the password holds an @; expected %40"),
        ("postgresql://me:first:tail@nohost.invalid:54x/db", "storage: the URL cannot be read; expected postgresql://"),
        (
            "postgresql://me:first/tail@nohost.invalid/db",
            "storage: postgresql+psycopg://me:***@nohost.invalid/db cannot",
        ),
        ("postgresql://me@nohost.invalid/db?password=first-tail", "cannot be used"),
        ("first-tail", "storage: the URL is not one of PostgreSQL"),
    ],
)
def test_no_part_of_a_password_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: str) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(storages, "_TRIES", 1)
    monkeypatch.setattr(storages, "_WAIT_SECONDS", 0)
    with pytest.raises(DomainbertError) as caught:
        open_storage(StorageConfig(kind="postgresql"), tmp_path, {URL: url})
    assert said in str(caught.value) and "first" not in str(caught.value) and "tail" not in str(caught.value)
    assert caught.value.__context__ is None or "first" not in str(caught.value.__context__)


class Lost(Exception):
    """The connection is."""


def database(failures: int) -> Any:
    """A dialect whose database is away for some tries."""
    tries = []

    def connect(*arguments: Any, **parameters: Any) -> str:
        tries.append(arguments)
        if len(tries) <= failures:
            raise Lost("connection refused\nIs the server running?")
        return "connection"

    return SimpleNamespace(connect=connect, loaded_dbapi=SimpleNamespace(OperationalError=Lost), tries=tries)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(storages.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(storages.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_a_database_that_restarts_is_waited_for(clock: list[float]) -> None:
    said: list[str] = []
    dialect, patience = database(3), Patience(said.append)
    assert patience.connect(dialect, None, ["a"], {}) == "connection"
    waiting = "storage: cannot be reached (connection refused); trying again for 5 min"
    assert said == [waiting, "storage: is there again"] and len(dialect.tries) == 4
    assert patience.connect(dialect, None, ["a"], {}) == "connection" and len(said) == 2


def test_a_database_is_waited_for_only_so_long_and_once(clock: list[float]) -> None:
    dialect, patience = database(10_000), Patience(lambda line: None, seconds=60)
    with pytest.raises(Lost):
        patience.connect(dialect, None, [], {})
    assert 60 < clock[0] < 70
    with pytest.raises(Lost):
        patience.connect(dialect, None, [], {})
    assert clock[0] < 70


def test_a_signal_ends_the_waiting(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StopSignals, "received", 15)
    with pytest.raises(Lost):
        Patience(lambda line: None).connect(database(2), None, [], {})
    assert clock[0] == 0.0
