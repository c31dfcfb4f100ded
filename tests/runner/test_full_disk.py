"""A disk that is full: one sentence, nothing half-written, and the stage can be run again."""

from __future__ import annotations

import builtins
import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from safetensors import SafetensorError

from domainbert.base.files import report_full_disk
from domainbert.base.run_record import RunRecord
from domainbert.cli import main
from tests.resuming import Work, pretraining
from tests.runner.test_jobs import interrupt

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
VOCAB = ["config.yaml", "run.json", "tokenizer.json", "vocab.txt", "report.json"]
PREPARED = ["config.yaml", "run.json", "data-00000.arrow", "dataset_info.json", "state.json", "prepared.json"]


class FullDisk:
    """From the first write to a file of this name on, all writes fail halfway, as on a full disk."""

    def __init__(self, name: str, patch: pytest.MonkeyPatch) -> None:
        self.name, self.full = name, False
        real = builtins.open

        def open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            opened = real(file, mode, *arguments, **options)
            self.full |= "w" in mode and Path(str(file)).name.lstrip(".").startswith(self.name)
            return _Full(opened) if self.full and "w" in mode else opened

        patch.setattr(builtins, "open", open)
        patch.setattr("io.open", open)
        patch.setattr("pyarrow.OSFile", lambda path, mode: open(path, mode))


class _Full:
    """A file of which a write leaves half."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, content: Any) -> int:
        self.file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def settings(runs: Any, stage: str) -> list[str]:
    words = [stage, "--corpus.sources", f"[{{path: {runs / 'sample/corpus.jsonl'}}}]"]
    words += ["--corpus.validation_fraction", "0.1"]
    return [*words, "--vocab_size", "512"] if stage == "vocab" else [*words, "--tokenizer", str(runs / "vocab")]


@pytest.mark.parametrize(("stage", "names"), [("vocab", VOCAB), ("prepare", PREPARED)])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    runs: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    names: list[str],
) -> None:
    words = [*settings(runs, stage), "--out", str(tmp_path / "out")]
    for name in names:
        with monkeypatch.context() as patch:
            disk = FullDisk(name, patch)
            assert main(words) == 2
            assert disk.full, name
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith(f"domainbert: {tmp_path / 'out'}: No space left on device (stage {stage} had written ")
        assert said.endswith(" were free); no output was kept; free some space and run the stage again")
        assert list(tmp_path.iterdir()) == [], name
    assert main(words) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"run.json"}


def test_results_that_cannot_be_recorded_are_not_kept(
    fake_stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    real = RunRecord.write

    def full(record: RunRecord, folder: Path) -> None:
        if record.done:
            raise FULL
        real(record, folder)

    with monkeypatch.context() as patch:
        patch.setattr(RunRecord, "write", full)
        assert main(["make", "--words", "[a]", "--out", "out"]) == 2
    assert "no output was kept; free some space and run the stage again" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0


def test_a_training_keeps_its_checkpoints_and_goes_on(
    runs: Any, tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """safetensors writes without Python's files, and raises its own errors."""
    monkeypatch.setattr("domainbert.training.throughput.measured_peak_flops", lambda *_: 1e12)  # it takes a second
    work = Work(tmp_path)
    changes = {"batch_size": 8, "budget": {"max_steps": 4}, "validate_every": 2}
    training = pretraining(runs / "prepare", **changes)

    def half(tensors: Any, path: Path, metadata: Any) -> None:
        path.write_bytes(b"half of it")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", half)
        assert work.run("pretrain", "out", training) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"domainbert: {tmp_path / 'out'}: No space left on device (stage pretrain had written ")
    assert "were free); its progress was kept; free some space, and resume with: domainbert pretrain -c " in said
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {"checkpoints", "config.yaml", "logs", "running.lock", "run.json"}
    assert json.loads((tmp_path / "out/run.json").read_text())["state"] == "failed"
    work.trained.clear()
    assert work.run("pretrain", "out", training, "--resume", "auto") == 0
    assert work.trained == [(0, 2), (0, 3)]


def test_the_settings_of_an_interrupted_stage_outlive_a_full_disk(
    fake_stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that resumes the stage reads the file that it writes again."""
    monkeypatch.chdir(tmp_path)
    assert main(["make", "--words", "[a]", "--out", "out"]) == 0
    interrupt(Path("out"))
    before, resume = Path("out/config.yaml").read_text(), ["make", "-c", "out/config.yaml", "--resume", "auto"]
    with monkeypatch.context() as patch:
        FullDisk("config.yaml", patch)
        assert main(resume) == 2
    assert "its progress was kept; free some space, and resume with: domainbert make -c " in capsys.readouterr().err
    assert Path("out/config.yaml").read_text() == before
    assert main(resume) == 0


def test_a_recipe_without_room_for_its_results_says_so(
    fake_stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text("out: runs\nstages:\n  make: {words: [a]}\n")
    for name in ("results.json", "hashes.json"):
        with monkeypatch.context() as patch:
            FullDisk(name, patch)
            assert main(["run", "recipe.yaml"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("domainbert: runs: No space left on device: ") and said.endswith(
            " bytes are free; free some space\n"
        )
        assert not list(Path("runs").glob("*.tmp"))
    assert main(["run", "recipe.yaml"]) == 0


def test_the_thread_of_tensorboard_shows_no_traceback(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It raises its error in the main thread again."""
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # undone afterwards
    monkeypatch.setattr(
        "tensorboard.summary.writer.record_writer.RecordWriter.write", lambda *_: (_ for _ in ()).throw(FULL)
    )
    training = pretraining(runs / "prepare", budget={"max_steps": 4}, loggers=["jsonl", "tensorboard"])
    assert Work(tmp_path).run("pretrain", "out", training) == 2
    said = capsys.readouterr().err
    assert f"domainbert: {tmp_path / 'out'}: No space left on device (stage pretrain had " in said
    assert "Traceback" not in said


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "Permission denied"), RuntimeError("another one")])
def test_other_errors_stay_what_they_are(tmp_path: Path, error: Exception) -> None:
    raising: Callable[[], None]

    def raising() -> None:
        with report_full_disk(tmp_path):
            raise error

    with pytest.raises(type(error)) as caught:
        raising()
    assert caught.value is error
