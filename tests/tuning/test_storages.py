from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from domainbert.base.errors import DomainbertError
from domainbert.tuning import storages
from domainbert.tuning.config import URL, StorageConfig
from domainbert.tuning.storages import open_storage


@pytest.mark.parametrize("garbage", [b"\xff\xfe\x00", b"not json", b"[1, 2]", b'{"op": 1}', b"[" * 9999])
def test_a_journal_that_is_no_journal_is_told_in_a_sentence(tmp_path: Path, garbage: bytes) -> None:
    config = StorageConfig(kind="journal")
    study = optuna.create_study(study_name="one", storage=open_storage(config, tmp_path))
    study.tell(study.ask(), 1.0)
    journal = tmp_path / "study.journal"
    lines = journal.read_bytes().count(b"\n")
    with open(journal, "ab") as file:
        file.write(garbage + b"\n")
    with pytest.raises(DomainbertError) as caught:
        open_storage(config, tmp_path)
    assert str(caught.value).startswith(f"{journal}:{lines + 1}: not an entry of a journal")
    assert len(str(caught.value)) < 300
    with open(journal, "ab") as file:
        file.write(b'{"op_code": 4}\n')
    with pytest.raises(DomainbertError, match=f":{lines + 1}: not an entry of a journal"):
        study.get_trials()  # while the search runs


@pytest.mark.parametrize("entry", [b'{"op_code": 99}', b'{"op_code": 4}', b'{"op_code": 4, "study_id": []}'])
def test_a_journal_that_contradicts_itself_is_told_in_a_sentence(tmp_path: Path, entry: bytes) -> None:
    config = StorageConfig(kind="journal")
    optuna.create_study(study_name="one", storage=open_storage(config, tmp_path))
    with open(tmp_path / "study.journal", "ab") as file:
        file.write(entry + b"\n")
    with pytest.raises(DomainbertError, match=r"study\.journal: its entries contradict each other"):
        open_storage(config, tmp_path)


def test_a_line_that_a_killed_worker_has_not_finished_is_cut_off(tmp_path: Path) -> None:
    config = StorageConfig(kind="journal")
    study = optuna.create_study(study_name="one", storage=open_storage(config, tmp_path))
    with open(tmp_path / "study.journal", "ab") as file:
        file.write(b'{"op_code": 4, "wor')
    again = optuna.load_study(study_name="one", storage=open_storage(config, tmp_path))
    again.tell(again.ask(), 1.0)
    assert [trial.value for trial in study.trials] == [1.0]


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
