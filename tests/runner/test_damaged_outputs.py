"""`domainbert run` and `domainbert <stage>` over folders whose content is not what the stages wrote."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from domainbert.base.files import hash_file
from domainbert.cli import main

RECIPE = """\
out: runs
stages:
  make: {words: [a, b]}
  again: {stage: make, words: [c]}
  use: {source: "@make/words.txt"}
  score: {models: {ours: "@use"}}
"""


@pytest.fixture(autouse=True)
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_stages: ModuleType) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(RECIPE)
    assert main(["run", "recipe.yaml"]) == 0
    fake_stages.CALLS.clear()


def damage() -> None:
    """Another content of the same size and time."""
    file = Path("runs/make/words.txt")
    status = file.stat()
    file.write_text("a b a c")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_damaged_folder_is_named_and_made_again_by_force(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("runs/results.json").read_bytes()
    damage()
    capsys.readouterr()
    assert main(["run", "recipe.yaml"]) == 2
    assert capsys.readouterr().err == (
        "domainbert: stage make: runs/make was changed after the stage finished (words.txt has changed); "
        "restore the files, or use --force make to run this stage and its dependents again\n"
    )
    assert fake_stages.CALLS == []
    assert main(["run", "recipe.yaml", "--dry-run"]) == 2, "a run would end with 2, too"
    assert capsys.readouterr().out.splitlines() == [
        "stop  make (words.txt has changed; restore the files, or use --force make) -> runs/make",
        "skip  again (done) -> runs/again",
        "skip  use (done) -> runs/use",
        "skip  score (done) -> runs/score",
    ]
    assert main(["run", "recipe.yaml", "--force", "make"]) == 0
    assert fake_stages.CALLS == ["make", "use", "score"]
    assert Path("runs/make/words.txt").read_text() == "a b a b"
    assert Path("runs/results.json").read_bytes() == before
    assert main(["run", "recipe.yaml"]) == 0


def test_all_damaged_folders_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    damage()
    Path("runs/again/words.txt").unlink()
    assert main(["run", "recipe.yaml"]) == 2
    said = capsys.readouterr().err
    assert "2 problems" in said and "stage make: runs/make" in said
    assert "stage again: runs/again was changed after the stage finished (words.txt is missing)" in said


def test_a_stage_that_needs_a_damaged_one_does_not_run(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    damage()
    assert main(["run", "recipe.yaml", "--only", "use", "--force", "use"]) == 2
    assert "stage use: needs stage make, which is not up to date (words.txt has changed)" in capsys.readouterr().err
    assert main(["run", "recipe.yaml", "--only", "again"]) == 0  # it does not need it
    assert fake_stages.CALLS == []


def test_a_copy_is_done(fake_stages: ModuleType) -> None:
    """Its times and inodes are others; what was hashed for that is remembered."""
    shutil.copytree("runs", "copy")
    assert main(["run", "recipe.yaml", "--out", "copy"]) == 0
    assert fake_stages.CALLS == []
    known = json.loads(Path("copy/.cache/hashes.json").read_text())
    assert known[str(Path("copy/make/words.txt").resolve())][-1] == hash_file(Path("copy/make/words.txt"))


def test_verify_hashes_what_a_quick_look_clears(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that forgets a bit changes no time."""
    file = Path("runs/make/words.txt").resolve()
    monkeypatch.setattr(
        "domainbert.base.files.hash_file", lambda path: "0" * 64 if path.resolve() == file else hash_file(path)
    )
    assert main(["run", "recipe.yaml"]) == 0
    assert main(["run", "recipe.yaml", "--verify"]) == 2
    assert (
        "stage make: runs/make was changed after the stage finished (words.txt has changed)" in capsys.readouterr().err
    )


def test_verify_hashes_inputs_again(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("source.txt").write_text("x")
    Path("recipe.yaml").write_text("out: other\nstages:\n  use: {source: source.txt}\n")
    assert main(["run", "recipe.yaml"]) == 0
    monkeypatch.setattr("domainbert.base.files.hash_file", lambda path: "0" * 64)
    capsys.readouterr()
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0
    assert main(["run", "recipe.yaml", "--dry-run", "--verify"]) == 0
    assert [line.partition(" ->")[0] for line in capsys.readouterr().out.splitlines()] == [
        "skip  use (done)",
        "run   use (source changed)",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]", "runs/make: holds files that domainbert did not write; expected an empty or a new folder"),
        ("[" * 100_000, "runs/make/run.json: not valid JSON"),
        (
            '{"stage": "make", "key": 7, "made_from": {}}',
            "stage make: runs/make was changed after the stage finished (run.json has changed)",
        ),
    ],
)
def test_an_odd_record_stops_a_run_with_a_sentence(capsys: pytest.CaptureFixture[str], content: str, said: str) -> None:
    Path("runs/make/run.json").write_text(content)
    capsys.readouterr()
    assert main(["run", "recipe.yaml"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"domainbert: {said}")
    if "not valid JSON" in error:
        assert error.endswith("remove the file and use --force, or use a new folder\n")
        Path("runs/make/run.json").unlink()
        assert main(["run", "recipe.yaml", "--force", "make"]) == 0


def test_a_folder_whose_seal_was_removed_is_replaced_by_force_alone(
    fake_stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who edits an output on purpose removes the record: the edit is not overwritten without --force."""
    damage()
    Path("runs/make/run.json").unlink()
    capsys.readouterr()
    assert main(["run", "recipe.yaml", "--dry-run"]) == 2
    assert capsys.readouterr().out.splitlines()[0] == (
        "stop  make (its run.json was removed; restore the files, or use --force make) -> runs/make"
    )
    assert main(["run", "recipe.yaml"]) == 2
    assert capsys.readouterr().err == (
        "domainbert: stage make: runs/make was changed after the stage finished (its run.json was removed); "
        "restore the files, or use --force make to run this stage and its dependents again\n"
    )
    assert main(["run", "recipe.yaml", "--only", "again"]) == 0
    assert main(["make", "-c", "runs/make/config.yaml"]) == 2
    assert capsys.readouterr().err == (
        "domainbert: runs/make: was changed after the stage make finished (its run.json was removed); restore the "
        "files, or use --force to run the stage again\n"
    )
    assert Path("runs/make/words.txt").read_text() == "a b a c" and fake_stages.CALLS == []
    assert main(["run", "recipe.yaml", "--force", "make"]) == 0
    assert Path("runs/make/words.txt").read_text() == "a b a b"
    assert Path("runs/make/run.json").is_file()
    capsys.readouterr()
    assert main(["run", "recipe.yaml", "--dry-run"]) == 0
    assert all(line.startswith("skip  ") for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("config", [None, "words: [a]\n"])
def test_a_folder_without_record_and_settings_is_foreign(
    config: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("run.json", "config.yaml"):
        Path("runs/make", name).unlink()
    if config is not None:
        Path("runs/make/config.yaml").write_text(config)
    assert main(["run", "recipe.yaml", "--force"]) == 2
    assert "runs/make: holds files that domainbert did not write" in capsys.readouterr().err
