from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.base.files import FileHashes, hash_file, hash_json
from domainbert.base.paths import resolve_path
from tests.refusals import refused


def test_hash_file_is_sha256(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000  # more than one block
    (tmp_path / "a").write_bytes(data)
    assert hash_file(tmp_path / "a") == hashlib.sha256(data).hexdigest()


def test_the_hash_of_a_folder_sees_names_and_contents_only(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "a").write_text("x")
    os.utime(tmp_path / "two" / "sub" / "a", (0, 0))
    before = FileHashes().hash_path(tmp_path / "one")
    assert before == FileHashes().hash_path(tmp_path / "two")
    for name in ("run.json", "README.md", "sub/README.md"):  # a model card may be edited
        (tmp_path / "one" / name).write_text("{}")
    assert FileHashes().hash_path(tmp_path / "one") == before
    (tmp_path / "one" / "b").write_text("{}")
    assert FileHashes().hash_path(tmp_path / "one") != before
    (tmp_path / "two" / "sub" / "a").rename(tmp_path / "two" / "sub" / "b")
    assert FileHashes().hash_path(tmp_path / "two") != before


def test_the_content_of_a_linked_folder_counts(tmp_path: Path) -> None:
    for name in ("model/weights", "elsewhere/deep/weights"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "model/seed-1").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/loop").symlink_to(tmp_path / "elsewhere")
    before = FileHashes().hash_path(tmp_path / "model")
    (tmp_path / "elsewhere/deep/weights").write_text("other")
    assert FileHashes().hash_path(tmp_path / "model") != before


def test_logs_and_notes_count_in_a_folder_that_no_stage_wrote_alone(tmp_path: Path) -> None:
    """`seed-1/logs`, of a folder or of that seed; texts of a user's own may be called so."""
    for name in ("seed-1/config.json", "seed-1/logs/metrics.jsonl", "seed-1/training.json", "running.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")

    def hashes() -> list[str]:
        return [FileHashes().hash_path(folder) for folder in (tmp_path, tmp_path / "seed-1")]

    own = hashes()
    (tmp_path / "run.json").write_text("{}")
    made = hashes()
    assert set(own).isdisjoint(made)
    for name in ("logs/metrics.jsonl", "training.json"):
        (tmp_path / "seed-1" / name).write_text("other")
    (tmp_path / "running.lock").unlink()
    (tmp_path / "seed-1/report.html").write_text("a page of `domainbert report`")
    assert hashes() == made
    (tmp_path / "seed-1/config.json").write_text("other")
    assert set(hashes()).isdisjoint(made)


def test_parts_of_a_corpus_count_by_what_is_recorded_of_them(tmp_path: Path) -> None:
    """They may be too large to be read at each start."""
    (tmp_path / "parts/00000").mkdir(parents=True)
    (tmp_path / "tokenizer").mkdir()
    part, other = tmp_path / "parts/00000/data.arrow", tmp_path / "tokenizer/vocab.txt"
    for path in (part, other, tmp_path / "prepared.json"):
        path.write_text("a")

    def changes(path: Path) -> bool:
        before = FileHashes().hash_path(tmp_path)
        path.write_text(path.read_text() + "b")
        return FileHashes().hash_path(tmp_path) != before

    assert [changes(path) for path in (part, other, tmp_path / "prepared.json")] == [False, True, True]
    (tmp_path / "prepared.json").unlink()
    assert changes(part), "a folder of this name of anyone else"


def test_hash_json_ignores_the_order_of_keys() -> None:
    assert (
        hash_json({"a": 1, "b": [1, "é"]}) == hash_json({"b": [1, "é"], "a": 1}) != hash_json({"a": 1, "b": ["é", 1]})
    )


def test_cache_is_used_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, cache = tmp_path / "a", tmp_path / "cache" / "hashes.json"
    file.write_text("one")
    hashes = FileHashes(cache)
    first = hashes.hash_path(file)
    hashes.save()
    with monkeypatch.context() as patch:
        patch.setattr("domainbert.base.files.hash_file", lambda path: "read again")
        assert FileHashes(cache).hash_path(file) == first
        assert FileHashes(cache, trust_cache=False).hash_path(file) == "read again"
        os.utime(file, ns=(0, 1))
        assert FileHashes(cache).hash_path(file) == "read again"
    cache.write_text('{"cut o')
    assert FileHashes(cache).hash_path(file) == first


def test_a_change_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    file, cache = tmp_path / "a", tmp_path / "hashes.json"
    file.write_text("one")
    hashes = FileHashes(cache)
    first, status = hashes.hash_path(file), file.stat()
    hashes.save()
    while file.stat().st_ctime_ns == status.st_ctime_ns:  # the clock of the disk has ticks of some milliseconds
        file.write_text("two")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert FileHashes(cache).hash_path(file) == hash_file(file) != first
    (tmp_path / "b").write_text("six")
    os.utime(tmp_path / "b", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "b").replace(file)  # another file in its place
    assert FileHashes(cache).hash_path(file) == hash_file(file) != first


def test_a_cache_of_an_older_version_does_not_count(tmp_path: Path) -> None:
    """It looked at size and modification time alone."""
    file, cache = tmp_path / "a", tmp_path / "hashes.json"
    file.write_text("one")
    status = file.stat()
    cache.write_text(json.dumps({str(file): [status.st_size, status.st_mtime_ns, "0" * 64]}))
    assert FileHashes(cache).hash_path(file) == hash_file(file)


def test_package_paths_are_found_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_model_package" / "model").mkdir(parents=True)
    (tmp_path / "some_model_package" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "some_model_package" / "model"
    assert resolve_path("package:some_model_package/model") == folder
    assert resolve_path(Path("package:some_model_package/model")) == folder
    assert "some_model_package" not in sys.modules
    assert resolve_path("data/x") == Path("data/x")
    with refused(problem="no installed Python package has the name 'absent_package'"):
        resolve_path("package:absent_package/model")
    for text in ("package:some_model_package/../x", "package:json.tool/x", "package:/etc"):
        with pytest.raises(DomainbertError):
            resolve_path(text)
