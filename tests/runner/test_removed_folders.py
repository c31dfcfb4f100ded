"""An output folder that is removed while its stage runs, and odd notes in one that was interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from domainbert.cli import main


def remove(out: Path) -> None:
    shutil.rmtree(out)


def replace(out: Path) -> None:
    """As a stage does that makes the folders it writes to."""
    shutil.rmtree(out)
    out.mkdir()
    (out / "words.txt").write_text("a part of it")


def empty(out: Path) -> None:
    for path in out.iterdir():
        path.unlink()


def unlock(out: Path) -> None:
    (out / "running.lock").unlink()


def act_at_end(monkeypatch: pytest.MonkeyPatch, fake_stages: ModuleType, act: Callable[[Path], None]) -> None:
    real = fake_stages.make

    @wraps(real)
    def make(out: Path, **settings: Any) -> Any:
        try:
            return real(out, **settings)
        finally:
            act(out)

    monkeypatch.setattr(fake_stages, "make", make)


@pytest.mark.parametrize("act", [remove, replace, empty])
@pytest.mark.parametrize("word", ["a", "bad", "crash"])
def test_a_folder_that_is_removed_under_a_stage(
    fake_stages: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    act: Callable[[Path], None],
    word: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    act_at_end(monkeypatch, fake_stages, act)
    assert main(["make", "--words", f"[{word}]", "--out", "out"]) == 2
    assert capsys.readouterr().err == (
        "domainbert: out: another process removed files while stage make was writing this folder; delete the folder if "
        "it still exists, and run the stage again\n"
    )
    assert not Path("out/run.json").exists()


def test_a_lock_alone_that_is_removed_does_no_harm(
    fake_stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    act_at_end(monkeypatch, fake_stages, unlock)
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0
    assert json.loads(Path("out/run.json").read_text())["state"] == "done"
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0


@pytest.mark.parametrize("made_from", ["text", 7, [], None])
def test_an_odd_record_of_an_interrupted_run(
    fake_stages: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made_from: object,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out/checkpoints/step-00000001").mkdir(parents=True)
    Path("out/running.lock").touch()
    record = {"stage": "make", "key": "", "state": "stopped", "made_from": made_from}
    Path("out/run.json").write_text(json.dumps(record))
    assert main(["make", "--words", "[a]", "--out", "out", "--resume", "auto"]) == 2
    assert "out: was changed after the stage make finished (run.json has changed)" in capsys.readouterr().err
    Path("out/run.json").unlink()
    assert main(["make", "--words", "[a]", "--out", "out", "--resume", "auto"]) == 2
    assert "out: was interrupted, and its settings or inputs have changed (" in capsys.readouterr().err
    assert main(["make", "--words", "[a]", "--out", "out", "--force"]) == 0
