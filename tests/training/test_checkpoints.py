from __future__ import annotations

import errno
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from domainbert.base import process
from domainbert.training import checkpoints as module
from domainbert.training.checkpoint_files import write_checkpoint
from domainbert.training.module import TrainedModule
from tests.resuming import Work, assert_same_outcome, pretraining

GO_ON = ("--resume", "auto")
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def settings(runs: Any) -> dict[str, Any]:
    return pretraining(runs / "prepare", batch_size=8, budget={"max_steps": 9}, validate_every=4)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[int, float | None]:
    """The steps at which checkpoints were written, and their scores."""
    found: dict[int, float | None] = {}

    def noted(folder: Path, step: int, num_bytes: int, save: Any, score: float | None = None) -> None:
        assert step not in found
        found[step] = score
        write_checkpoint(folder, step, num_bytes, save, score)
        assert (folder / f"step-{step:08d}/training.ckpt").stat().st_size == pytest.approx(num_bytes, rel=0.05)

    monkeypatch.setattr(module, "write_checkpoint", noted)
    return found


@pytest.mark.parametrize(("every", "steps"), [(None, [4, 8]), (3, [3, 4, 6, 8]), (1, list(range(1, 9))), (100, [4, 8])])
def test_checkpoints_are_written_every_so_many_steps_and_after_validations(
    work: Work, settings: dict[str, Any], saved: dict[int, float | None], every: int | None, steps: list[int]
) -> None:
    """None after the last step: the model is written then."""
    assert work.run("pretrain", "out", settings | {"checkpoint_every": every}) == 0
    assert list(saved) == steps
    metrics = json.loads((work / "out/run.json").read_text())["metrics"]
    validated = {row["step"]: row["loss"] for row in metrics["history"]}
    assert saved == {step: validated.get(step) for step in steps} and set(validated) == {4, 8, 9}


@pytest.mark.parametrize(("seconds", "steps"), [(0.5, [2, 4, 6]), (20.0, [2, 6])])
def test_finetuning_saves_after_each_epoch_unless_that_takes_long(
    runs: Any,
    work: Work,
    saved: dict[int, float | None],
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    steps: list[int],
) -> None:
    """A step takes 110 s, and an epoch two of them; saving takes `seconds`."""
    files = {split: str(runs.labelled("classification", split)) for split in ("train", "validation")}
    settings = {**pretraining(runs / "prepare"), **files, "model": str(runs / "pretrain"), "task": "Classification"}
    settings |= {"batch_size": 45, "max_epochs": 4, "checkpoint_every": 1000, "seeds": [1]}
    for name in ("prepared", "encoder", "budget", "validate_every"):
        del settings[name]
    now = {"seconds": 0.0}
    real = module.Checkpoints.on_train_batch_start

    def later(*arguments: Any) -> None:
        now["seconds"] += 110.0
        real(*arguments)

    clock = itertools.count(step=seconds)
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(module.time, "monotonic", lambda: now["seconds"])
    monkeypatch.setattr(module.Checkpoints, "on_train_batch_start", later)
    assert work.run("finetune", "out", settings) == 0
    assert list(saved) == steps


def test_otherwise_one_is_written_every_ten_minutes(
    work: Work, settings: dict[str, Any], saved: dict[int, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes 200 s; the clock is read once at the start, once a step, and once after a checkpoint."""
    now = itertools.count(step=200)
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(now)))
    assert work.run("pretrain", "out", settings | {"validate_every": 100}) == 0
    assert list(saved) == [3, 6]


@pytest.mark.parametrize(("step", "has_deadline"), [(0, True), (1, False)])
def test_only_a_signal_before_the_end_of_the_first_step_has_a_deadline(
    work: Work, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, step: int, has_deadline: bool
) -> None:
    """Later steps have something to save."""
    end, seconds = TrainedModule.on_train_batch_end, []
    monkeypatch.setattr(
        TrainedModule, "on_train_batch_end", lambda *args: end(*args) or seconds.append(process._seconds_left())
    )
    assert work.run("pretrain", "out", settings, stop=(0, step)) == 75
    assert [math.isfinite(left) for left in seconds] == [False] * step + [has_deadline]
    assert process._seconds_left() == math.inf, "of the next command"


def test_a_full_disk_does_not_end_a_training(
    work: Work, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert work.run("pretrain", "whole", settings) == 0
    fail_after(2, monkeypatch)
    assert work.run("pretrain", "out", settings | {"checkpoint_every": 1}) == 0
    printed = capsys.readouterr().out
    failed = "the checkpoint could not be written ([Errno 28] No space left on device); it needs "
    for step in range(1, 9):
        line = f"warning: {work / 'out/checkpoints' / f'step-{step:08d}'}: {failed}"
        assert (line in printed) == (step > 2)
    assert printed.count("are free; the training continues") == 6
    assert_same_outcome(work / "whole", work / "out")


def test_a_full_disk_at_the_end_is_told_and_the_checkpoint_before_stays(
    work: Work, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert work.run("pretrain", "whole", settings) == 0
    trained, work.trained = work.trained, []
    with monkeypatch.context() as patch:
        fail_after(2, patch)
        assert work.run("pretrain", "out", settings | {"checkpoint_every": 2}, "--json", stop=(0, 6)) == 2
    facts = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert "step-00000007: the checkpoint could not be written" in facts["message"]
    assert facts["file"] == str(work / "out/checkpoints/step-00000007") and facts["hint"].startswith("it needs ")
    status = json.loads((work / "out/run.json").read_text())
    assert status["state"] == "failed" and "step-00000007" in status["reason"]
    assert status["resume_command"].endswith("auto")
    assert sorted(path.name for path in (work / "out/checkpoints").glob("step-*")) == ["step-00000002", "step-00000004"]
    assert work.run("pretrain", "out", settings, *GO_ON) == 0
    assert work.trained == trained[:7] + trained[4:]
    assert_same_outcome(work / "whole", work / "out")


def fail_after(calls: int, patch: pytest.MonkeyPatch) -> None:
    """The disk is full from the next write on."""
    real, left = module._write_state, iter(range(calls))

    def write(state: dict[str, Any], path: Path) -> None:
        real(state, path)
        if next(left, None) is None:
            raise FULL

    patch.setattr(module, "_write_state", write)


def test_a_training_that_has_no_room_is_refused_before_it_starts(
    work: Work, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four checkpoints of three floats a weight each, and the model."""
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 0, 1_000_000))
    assert work.run("pretrain", "out", settings) == 2
    weights = 4 * 144_192
    assert capsys.readouterr().err == (
        f"domainbert: {work / 'out'}: the disk has 1,000,000 bytes free; "
        f"expected at least {13 * weights:,} for the checkpoints and the model\n"
    )
    assert work.trained == [] and not (work / "out").exists()


def test_a_checkpoint_is_about_as_large_as_is_said_before(
    work: Work, settings: dict[str, Any], saved: dict[int, float | None]
) -> None:
    assert work.run("pretrain", "out", settings, stop=(0, 1)) == 75
    size = (work / "out/checkpoints/step-00000002/training.ckpt").stat().st_size
    assert size == pytest.approx(3 * 4 * 144_192, rel=0.1) and not math.isnan(size)
