from __future__ import annotations

from pathlib import Path

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.tuning import trials
from domainbert.tuning.config import STORAGE_URL_VARIABLE, StorageConfig
from domainbert.tuning.trials import open_storage


def test_a_missing_driver_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def missing(*_: object, **__: object) -> None:
        attempts.append(1)
        raise ImportError("no driver")

    monkeypatch.setattr(trials, "RDBStorage", missing)
    with pytest.raises(DomainbertError, match=r"storage: cannot open sqlite.* \(no driver\); check storage\.url"):
        open_storage(StorageConfig(), tmp_path, {})
    assert len(attempts) == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:first@tail@nohost.invalid/db", "storage: the password in the URL contains '@'; write %40"),
        (
            "postgresql://me:first@ss:tail@nohost.invalid/db",
            "storage: the password in the URL contains '@'; write %40",
        ),
        ("postgresql://me:first:tail@nohost.invalid:54x/db", "storage: the URL is invalid; expected DIALECT://"),
        (
            "postgresql://me:first/tail@nohost.invalid/db",
            "storage: cannot open postgresql+psycopg://me:***@nohost.invalid/db",
        ),
        ("postgresql://me@nohost.invalid/db?password=first-tail", "storage: cannot open"),
        ("first-tail", "storage: the URL is invalid"),
    ],
)
def test_no_part_of_a_password_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: str) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(trials, "_MAX_ATTEMPTS", 1)
    monkeypatch.setattr(trials, "_ATTEMPT_SECONDS", 0)
    with pytest.raises(DomainbertError) as caught:
        open_storage(StorageConfig(), tmp_path, {STORAGE_URL_VARIABLE: url})
    assert said in str(caught.value) and "first" not in str(caught.value) and "tail" not in str(caught.value)
    assert caught.value.__context__ is None or "first" not in str(caught.value.__context__)
