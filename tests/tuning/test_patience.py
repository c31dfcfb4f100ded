from __future__ import annotations

import pytest

from domainbert.tuning import trials
from domainbert.tuning.trials import StorageWait


class Lost(Exception):
    """The storage is."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(trials.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(trials.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_a_storage_that_comes_back_is_waited_for(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    storage_wait = StorageWait()
    storage_wait.end()
    for _ in range(3):
        storage_wait.wait(Lost("connection refused\nIs the server running?"))
    storage_wait.end()
    storage_wait.end()
    assert capsys.readouterr().out.splitlines() == [
        "storage: connection lost (connection refused); trying again for 5 minutes",
        "storage: connected again",
    ]
    clock[0] = 1000.0
    storage_wait.wait(Lost("once more"))  # the minutes start again
    assert "connection lost" in capsys.readouterr().out


def test_it_is_waited_for_only_so_long(clock: list[float]) -> None:
    storage_wait = StorageWait(seconds=60)
    with pytest.raises(Lost):
        for _ in range(1000):
            storage_wait.wait(Lost("gone"))
    assert 60 < clock[0] < 65
