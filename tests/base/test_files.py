from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from domainbert.base.files import read_json, write_json, write_text
from tests.refusals import refused


def test_a_value_comes_back_and_nothing_else_is_left(tmp_path: Path) -> None:
    value = {"f1": 0.1 + 0.2, "list": [1, None, True], "name": "Zürich, 東京", "nested": {"a": {}}}
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == value
    assert "Zürich, 東京" in (tmp_path / "a.json").read_text(encoding="utf-8")
    assert (tmp_path / "a.json").read_bytes().endswith(b"}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("broken", [{"a": object()}, {"a": [1, {2, 3}]}])
def test_a_value_that_cannot_be_written_leaves_the_old_file(tmp_path: Path, broken: object) -> None:
    write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", broken)
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": 1}


def test_the_file_is_complete_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        seen.append((path.parent, json.loads(path.read_text()), target.exists()))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    write_json(tmp_path / "a.json", [1, 2])
    assert seen == [(tmp_path, [1, 2], False)]


def test_secrets_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcdefgh12345678")
    write_json(tmp_path / "a.json", {"text": "key abcdefgh12345678", "url": "postgresql://me:hunter22@host/db"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"text": "key ***", "url": "postgresql://me:***@host/db"}


def test_a_hash_that_looks_like_a_secret_is_kept_where_it_has_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcdefgh12345678")
    write_json(tmp_path / "a.json", {"abcdefgh12345678": 1}, unredacted=True)
    assert read_json(tmp_path / "a.json", "hashes") == {"abcdefgh12345678": 1}


@pytest.mark.parametrize(
    ("content", "problem", "expected"),
    [
        (None, "cannot be read (No such file or directory)", "hashes"),
        (b'{"a": ', "not valid JSON (Expecting value: line 1 column 7 (char 6))", "hashes"),
        (b"\xff", "not valid JSON ('utf-8' codec can't decode byte 0xff in position 0: invalid...", "..."),
        (b"[" * 100_000, "not valid JSON (maximum recursion depth exceeded...", "..."),
        (b"[1]", "found a JSON list", "hashes"),
    ],
)
def test_what_is_no_json_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, problem: str, expected: str
) -> None:
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with refused(file="a.json", problem=problem, expected=expected):
        read_json(tmp_path / "a.json", "hashes")


def test_any_value_of_json_is_read_where_it_may_be_any(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", ["Zürich"])
    assert read_json(tmp_path / "a.json", "a list of names", kind=object) == ["Zürich"]


def test_text_has_its_line_ends_and_processes_of_two_machines_other_names_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        names.append(path.name)
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    for host in ("one", "other"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        write_text(tmp_path / "a.csv", "a\r\nb\n")
    assert names == [f".a.csv.one.{os.getpid()}.tmp", f".a.csv.other.{os.getpid()}.tmp"]
    assert (tmp_path / "a.csv").read_bytes() == b"a\r\nb\n"
