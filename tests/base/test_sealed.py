"""What a stage has written is compared before anyone relies on it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.base.files import RUN, FileHashes, hash_file
from domainbert.base.freshness import format_examples, record_outputs
from domainbert.base.run_record import RunRecord, check_outputs_unchanged, read_record
from tests.refusals import refused

FACTS = {"stage": "make", "key": "k", "made_from": {"stage": "make"}, "state": "done", "metrics": {"f1": 0.5}}
RECORD = RunRecord(**FACTS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed folder of a stage with a model for a seed."""
    made = tmp_path / "stage"
    for name in ("data.bin", "seed-1/config.json", "seed-1/README.md", "seed-1/logs/metrics.jsonl", "config.yaml"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(f"content of {name}")
    RECORD.write(made)
    return made


def found(folder: Path, **options: Any) -> list[str]:
    record = read_record(folder)
    assert record is not None
    return record.damage(folder, FileHashes(), **options)


def test_outputs_are_recorded_by_content_without_cards_and_what_the_runner_notes(folder: Path) -> None:
    outputs = json.loads((folder / RUN).read_text())["outputs"]
    assert list(outputs) == ["data.bin", "seed-1/config.json", "seed-1/logs/metrics.jsonl"]
    for name, facts in outputs.items():
        status = (folder / name).stat()
        assert facts["sha256"] == hash_file(folder / name) and facts["bytes"] == status.st_size
        assert facts["quick_look"] == [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    assert found(folder) == found(folder, thorough=True) == []


def test_only_another_content_is_damage(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    os.utime(tmp_path / "copy/data.bin", ns=(0, 0))
    (tmp_path / "copy/seed-1/README.md").write_text("my own model card")
    (tmp_path / "copy/notes.txt").write_text("mine")
    assert found(tmp_path / "copy") == []
    (tmp_path / "copy/data.bin").write_text("Content of data.bin")
    assert found(tmp_path / "copy") == ["data.bin has changed"]
    (tmp_path / "copy/data.bin").write_text("")
    assert found(tmp_path / "copy") == ["data.bin has changed (0 bytes; it had 19)"]
    shutil.rmtree(tmp_path / "copy/seed-1")
    (tmp_path / "copy/data.bin").unlink()
    names = ["data.bin", "seed-1/config.json", "seed-1/logs/metrics.jsonl"]
    assert found(tmp_path / "copy") == [f"{name} is missing" for name in names]


def test_a_quick_look_clears_what_only_hashing_finds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that forgets a bit changes no time."""
    changed = {"data.bin": "0" * 64}
    monkeypatch.setattr("domainbert.base.files.hash_file", lambda path: changed.get(path.name) or hash_file(path))
    assert found(folder) == []
    assert found(folder, thorough=True) == ["data.bin has changed"]


def test_a_changed_record_is_itself_damage(folder: Path) -> None:
    text = (folder / RUN).read_text()
    (folder / RUN).write_text(text.replace("0.5", "0.9"))
    assert found(folder) == ["run.json has changed"]
    without = {name: value for name, value in json.loads(text).items() if name != "sha256"}
    (folder / RUN).write_text(json.dumps(without))
    assert found(folder) == ["run.json has changed"]


def test_a_folder_that_is_not_finished_is_not_checked(folder: Path) -> None:
    replace(RECORD, state="stopped").write(folder)
    shutil.rmtree(folder / "seed-1")
    assert found(folder) == found(folder, thorough=True) == []
    check_outputs_unchanged(folder / "seed-1", "config.json")


@pytest.mark.parametrize("name", ["stage", "state", "key", "made_from", "metrics", "outputs"])
@pytest.mark.parametrize("value", ["text", 7, [], None])
def test_a_record_with_another_value_has_changed(folder: Path, name: str, value: object) -> None:
    content = json.loads((folder / RUN).read_text())
    (folder / RUN).write_text(json.dumps({**content, name: value}))
    record = read_record(folder)
    assert record == RunRecord(record.stage, "done", is_unchanged=False) and found(folder) == ["run.json has changed"]


def test_a_reader_is_told_of_the_files_that_it_reads(folder: Path) -> None:
    (folder / "seed-1/config.json").write_text("{}")
    check_outputs_unchanged(folder, "*.bin", "*.json")
    check_outputs_unchanged(folder.parent, "*")
    with refused(
        file=folder,
        problem="changed since stage make finished: seed-1/config.json has changed (2 bytes; it had 29)",
        hint="restore the files, or run make again with --force (in a recipe: --force stage)",
    ):
        check_outputs_unchanged(folder / "seed-1", "config.json")
    with refused(problem="...config.json has changed..."):
        check_outputs_unchanged(folder, "seed-*/config.json")


def test_a_secret_that_is_the_name_of_a_file_does_no_harm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_TOKEN", "data.bin")
    replace(RECORD, config={"url": "https://data.bin@host/x"}).write(folder)
    assert found(folder) == found(folder, thorough=True) == []
    record = json.loads((folder / RUN).read_text())
    assert list(record["outputs"]) == ["data.bin", "seed-1/config.json", "seed-1/logs/metrics.jsonl"]
    assert "data.bin" not in record["config"]["url"]


def test_many_damages_are_counted() -> None:
    assert format_examples(["a is missing"]) == "a is missing"
    many = [f"{name} is missing" for name in "abcde"]
    assert format_examples(many) == "a is missing, b is missing, c is missing and 2 more"


@pytest.mark.parametrize("content", ['{"start_url": "mine"}', "[1, 2]", "7"])
def test_the_file_of_other_software_is_left_alone(folder: Path, content: str) -> None:
    (folder / RUN).write_text(content)
    check_outputs_unchanged(folder, "*")
    assert read_record(folder) is None


@pytest.mark.parametrize(
    "content",
    [
        b'{"stage": "make"',
        b"\xff\xfe{}",
        b'{"stage": "\xe9"}',
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_an_odd_record_is_told_in_a_sentence(folder: Path, content: bytes) -> None:
    (folder / RUN).write_bytes(content)
    with refused(file=folder / RUN, problem="not valid JSON...") as caught:
        read_record(folder)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.fixture(scope="module")
def sealed(runs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of stage folders, sealed as the runner does."""
    root = tmp_path_factory.mktemp("sealed")
    for name in ("vocab", "pretrain", "ner-pretrained"):
        shutil.copytree(runs / name, root / name)
        RECORD.write(root / name)
    return root


def flip_a_bit(file: Path) -> None:
    """In the midst of the file; size and modification time stay."""
    status, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def permute_ids(file: Path) -> None:
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    ids = list(vocab.values())
    content["model"]["vocab"] = dict(zip(vocab, ids[:5] + ids[:4:-1], strict=True))
    file.write_text(json.dumps(content))


def read_tokenizer(folder: Path) -> None:
    from domainbert.tokenization.load import load_tokenizer

    load_tokenizer(folder)


def read_model(folder: Path) -> None:
    from domainbert.models.loading import load_model

    load_model(folder, "masked_lm")


def read_tagger(folder: Path) -> None:
    from domainbert.serving.loaders import load_tagger

    load_tagger(folder, "32-true")


@pytest.mark.parametrize(
    ("name", "file", "damage", "read"),
    [
        ("vocab", "tokenizer.json", permute_ids, read_tokenizer),
        ("vocab", "tokenizer_config.json", Path.unlink, read_tokenizer),
        ("pretrain", "model.safetensors", flip_a_bit, read_model),
        ("pretrain", "model.safetensors", Path.unlink, read_model),
        ("pretrain", "config.json", Path.unlink, read_model),
        ("ner-pretrained", "seed-1/model.safetensors", flip_a_bit, read_tagger),
        ("ner-pretrained", "seed-1/tokenizer.json", permute_ids, read_tagger),
        ("ner-pretrained", "seeds.json", flip_a_bit, read_tagger),
    ],
)
def test_readers_refuse_what_a_stage_did_not_write(
    sealed: Path, tmp_path: Path, name: str, file: str, damage: Callable[[Path], None], read: Callable[[Path], None]
) -> None:
    folder = shutil.copytree(sealed / name, tmp_path / name)
    (folder / "README.md").write_text("my own model card")
    if name == "ner-pretrained":
        (folder / "seeds.json").write_text((sealed / name / "seeds.json").read_text())
        best = json.loads((folder / "seeds.json").read_text())["best"]
        file = file.replace("seed-1", best)
    read(folder)
    damage(folder / file)
    with pytest.raises(DomainbertError) as caught:
        read(folder)
    change = "is missing" if damage is Path.unlink else "has changed"
    assert str(caught.value).startswith(f"{folder}: changed since stage make finished: {file} {change}")
    (folder / RUN).unlink()  # to accept the change, remove the record


def test_a_seed_without_its_config_is_not_left_out_of_an_evaluation(sealed: Path, tmp_path: Path) -> None:
    from domainbert.stages.evaluate import _model_folders

    folder = shutil.copytree(sealed / "ner-pretrained", tmp_path / "ner")
    assert list(_model_folders({"a": folder})["a"]) == ["seed-1", "seed-2"]
    (folder / "seed-2/config.json").unlink()
    with refused(problem="...seed-2/config.json is missing"):
        _model_folders({"a": folder})


@pytest.mark.parametrize("stage", ["ner", "logs"])
def test_outputs_hold_no_hidden_or_temporary_files(tmp_path: Path, stage: str) -> None:
    folder = tmp_path / stage  # a stage may have the name of a folder of logs
    curves = ["logs/metrics.jsonl", "seed-1/logs/metrics.jsonl", "seed-1/training.json"]  # of which a report is made
    checkpoints = ["checkpoints/step-1/training.ckpt", "seed-1/checkpoints/x"]
    for name in ("a", ".hidden", ".cache/b", *checkpoints, "logs/y", *curves):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    assert list(record_outputs(folder)) == ["a", *curves]
    assert list(record_outputs(folder, with_quick_looks=False)) == ["a", "seed-1/training.json"], "logs hold times"
