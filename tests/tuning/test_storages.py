from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from domainbert.tuning import trials
from domainbert.tuning.config import STORAGE_URL_VARIABLE, StorageConfig
from domainbert.tuning.trials import open_storage
from tests.refusals import refused


def test_a_missing_driver_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def missing(*_: object, **__: object) -> None:
        attempts.append(1)
        raise ImportError("no driver")

    monkeypatch.setattr(trials, "RDBStorage", missing)
    with refused(where="storage", problem="cannot open sqlite... (no driver)", hint="check storage.url"):
        open_storage(StorageConfig(), tmp_path, {})
    assert len(attempts) == 1


@pytest.mark.parametrize("name", ["law?", "law%20uk", "a@b@c", "a&b=c;d#e:f", "{x} ü"])
def test_the_database_lies_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    study = optuna.create_study(storage=open_storage(StorageConfig(), out, {}), study_name="s")
    study.tell(study.ask(), 0.5)
    assert [path.name for path in tmp_path.iterdir()] == [name] and (out / "study.db").is_file()
    again = optuna.load_study(storage=open_storage(StorageConfig(), out, {}), study_name="s")
    assert [trial.value for trial in again.trials] == [0.5]


@pytest.mark.parametrize(
    ("url", "problem", "expected"),
    [
        ("postgresql://me:first@tail@nohost.invalid/db", "the password in the URL contains '@'", "write %40..."),
        ("postgresql://me:first@ss:tail@nohost.invalid/db", "the password in the URL...", "write %40..."),
        ("postgresql://me:first:tail@nohost.invalid:54x/db", "the URL is invalid", "DIALECT://..."),
        ("postgresql://me:first/tail@nohost.invalid/db", "cannot open...", "..."),
        ("postgresql://me@nohost.invalid/db?password=first-tail", "cannot open...", "..."),
        ("first-tail", "the URL is invalid", "..."),
    ],
)
def test_no_part_of_a_password_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, problem: str, expected: str
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(trials, "_MAX_ATTEMPTS", 1)
    monkeypatch.setattr(trials, "_ATTEMPT_SECONDS", 0)
    with refused(where="storage", problem=problem, expected=expected) as caught:
        open_storage(StorageConfig(), tmp_path, {STORAGE_URL_VARIABLE: url})
    assert "first" not in str(caught.value) and "tail" not in str(caught.value)
    assert caught.value.__context__ is None or "first" not in str(caught.value.__context__)
