from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from domainbert.base.files import hash_file
from domainbert.training import checkpoint_files as module
from domainbert.training.checkpoint_files import (
    FINISHED,
    check_disk_space,
    holds_progress,
    newest_checkpoint,
    remove_checkpoints,
    write_checkpoint,
)
from tests.refusals import refused


def write(folder: Path, step: int, score: float | None = None, content: bytes | None = None) -> None:
    """A checkpoint whose state names its step."""
    state = content if content is not None else b"state of step %d" % step
    write_checkpoint(folder, step, len(state), lambda path: _put(path, state), score)


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def steps(folder: Path) -> list[int]:
    """Of the checkpoints that stand there, damaged or not; nothing else does."""
    names = sorted(path.name for path in folder.iterdir())
    assert all(name.startswith("step-") for name in names), names
    return [int(name.removeprefix("step-")) for name in names]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out" / "checkpoints"


@pytest.fixture
def warnings() -> list[str]:
    return []


def test_what_is_written_is_found(folder: Path, warnings: list[str]) -> None:
    assert newest_checkpoint(folder, warnings.append) is None
    write(folder, 500, 0.25)
    state = folder / "step-00000500" / "training.ckpt"
    assert json.loads((folder / "step-00000500/checkpoint.json").read_text()) == {
        "step": 500,
        "bytes": 17,
        "sha256": hash_file(state),
        "score": 0.25,
    }
    found = newest_checkpoint(folder, warnings.append)
    assert found is not None and (found.path, found.step, found.score) == (folder / "step-00000500", 500, 0.25)
    assert found.file == state and state.read_bytes() == b"state of step 500"
    write(folder, 12_345_678)
    found = newest_checkpoint(folder, warnings.append)
    assert found is not None and (found.step, found.score) == (12_345_678, None)
    assert warnings == []


def test_two_stay_and_the_one_with_the_lowest_score(folder: Path) -> None:
    scores = {10: 0.9, 20: 0.4, 30: None, 40: 0.5, 50: 0.4, 60: 0.3, 70: None, 80: None}
    stay = []
    for step, score in scores.items():
        write(folder, step, score)
        stay.append(steps(folder))
    assert stay == [[10], [10, 20], [20, 30], [20, 30, 40], [20, 40, 50], [50, 60], [60, 70], [60, 70, 80]]


def test_a_process_that_is_killed_before_it_deletes_old_checkpoints_leaves_one_too_many(
    folder: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only one, however often that happens: the next process deletes it when it starts."""

    def killed(folder: Path) -> None:
        raise KeyboardInterrupt

    left = []
    for step in range(10, 60, 10):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(module, "_delete_old_checkpoints", killed)
            write(folder, step, score=step / 100)
        left.append(steps(folder))
        found = newest_checkpoint(folder, warnings.append)
        assert found is not None and found.step == step
    assert left == [[10], [10, 20], [10, 20, 30], [10, 20, 30, 40], [10, 30, 40, 50]] and warnings == []


def test_a_score_that_is_no_number_is_never_the_lowest(folder: Path) -> None:
    for step, score in {10: float("nan"), 20: 0.5, 30: float("nan"), 40: 0.6, 50: 0.7}.items():
        write(folder, step, score)
    assert steps(folder) == [20, 40, 50]


def test_the_same_step_again_replaces_it(folder: Path, warnings: list[str]) -> None:
    write(folder, 10, content=b"first")
    write(folder, 10, content=b"second")
    found = newest_checkpoint(folder, warnings.append)
    assert found is not None and found.file.read_bytes() == b"second" and steps(folder) == [10]


def flip_one_bit(checkpoint: Path) -> None:
    content = bytearray((checkpoint / "training.ckpt").read_bytes())
    content[len(content) // 2] ^= 1
    (checkpoint / "training.ckpt").write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (
        lambda path: os.truncate(path / "training.ckpt", 3),
        "training.ckpt has changed \\(3 bytes; it had 16",
    ),
    "flipped": (flip_one_bit, "training.ckpt has changed"),
    "empty": (lambda path: os.truncate(path / "training.ckpt", 0), "training.ckpt has changed \\(0 bytes; it had 16"),
    "no state": (lambda path: (path / "training.ckpt").unlink(), "training.ckpt is missing"),
    "no index": (lambda path: (path / "checkpoint.json").unlink(), r"cannot be read \(FileNotFoundError"),
    "empty index": (lambda path: os.truncate(path / "checkpoint.json", 0), r"cannot be read \(JSONDecodeError"),
    "index of zeros": (lambda path: (path / "checkpoint.json").write_bytes(bytes(99)), r"cannot be read"),
    "index that is no mapping": (lambda path: (path / "checkpoint.json").write_text("[1]"), r"cannot be read \(TypeE"),
    "index without a key": (lambda path: (path / "checkpoint.json").write_text("{}"), r"cannot be read \(KeyError"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_one_is_passed_over_with_a_warning(folder: Path, warnings: list[str], damage: str) -> None:
    write(folder, 10)
    write(folder, 20)
    DAMAGES[damage][0](folder / "step-00000020")
    found = newest_checkpoint(folder, warnings.append)
    assert found is not None and found.file.read_bytes() == b"state of step 10"
    assert len(warnings) == 1 and warnings[0].startswith(f"warning: {folder / 'step-00000020'} is damaged (")
    assert warnings[0].endswith(") and is deleted; resuming from step-00000010")
    assert re.search(DAMAGES[damage][1], warnings[0]), warnings[0]
    assert steps(folder) == [10], "the damaged one is removed, so that it is not counted as one of those kept"
    write(folder, 20)
    assert steps(folder) == [10, 20]


def test_several_damaged_ones_are_all_named(folder: Path, warnings: list[str]) -> None:
    for step in (10, 20, 30):
        write(folder, step, score=float(step))
    flip_one_bit(folder / "step-00000020")
    os.truncate(folder / "step-00000030/training.ckpt", 0)
    found = newest_checkpoint(folder, warnings.append)
    assert found is not None and found.step == 10
    assert [text.removeprefix("warning: ").partition(" is damaged")[0] for text in warnings] == [
        str(folder / "step-00000030"),
        str(folder / "step-00000020"),
    ]
    assert steps(folder) == [10]


def test_nothing_is_removed_where_every_one_is_damaged(folder: Path, warnings: list[str]) -> None:
    write(folder, 10)
    write(folder, 20)
    for step in (10, 20):
        flip_one_bit(folder / f"step-000000{step}")
    with refused(file=folder, problem="all checkpoints are damaged...", hint="delete this folder to start again"):
        newest_checkpoint(folder, warnings.append)
    assert steps(folder) == [10, 20] and warnings == []


class Killed(BaseException):
    """Simulates the end of the process: nothing may be done after it."""


def _killed(*_: object, **__: object) -> None:
    raise Killed


CUTS = ["rmtree", "rename", "fsync", "hash_file"]


@pytest.mark.parametrize("call", range(12))
@pytest.mark.parametrize("cut", CUTS)
def test_a_process_that_ends_at_any_call_leaves_a_sound_newest_one_and_nothing_else(
    folder: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch, cut: str, call: int
) -> None:
    write(folder, 10)
    write(folder, 20)
    _die_at(monkeypatch, cut, call)
    try:
        write(folder, 30)
        completed = True
    except Killed:
        completed = False
    monkeypatch.undo()
    found = newest_checkpoint(folder, warnings.append)
    assert found is not None and found.file.read_bytes() == b"state of step %d" % found.step
    assert warnings == [] and found.step in (20, 30) and (not completed or found.step == 30)
    assert set(steps(folder)) <= {10, 20, 30}
    write(folder, 40)
    assert steps(folder) == [found.step, 40], "what an interrupted removal left is removed at the next one"


def _die_at(monkeypatch: pytest.MonkeyPatch, cut: str, call: int) -> None:
    """The process ends at the given call of a function, before or, for `rmtree`, in the middle of its work."""
    owner = {"rmtree": shutil, "rename": Path, "fsync": os, "hash_file": module}[cut]
    real, calls = getattr(owner, cut), iter(range(call))

    def counted(*arguments: object, **named: object) -> object:
        if next(calls, None) is not None:
            return real(*arguments, **named)
        if cut == "rmtree" and (files := sorted(Path(str(arguments[0])).glob("*"))):
            files[0].unlink()
        raise Killed

    monkeypatch.setattr(owner, cut, counted)


def test_a_removal_that_is_interrupted_is_no_damaged_checkpoint(
    folder: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 10)
    write(folder, 20)
    monkeypatch.setattr(shutil, "rmtree", _half_removed)
    with pytest.raises(Killed):
        write(folder, 30)
    monkeypatch.undo()
    assert sorted(path.name for path in folder.iterdir()) == [
        ".step-00000010.removed",
        "step-00000020",
        "step-00000030",
    ]
    found = newest_checkpoint(folder, warnings.append)
    assert found is not None and found.step == 30
    assert steps(folder) == [20, 30] and warnings == []


def _half_removed(path: Path, ignore_errors: bool = False) -> None:
    if path.exists():
        (path / "training.ckpt").unlink()
        raise Killed


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("unexpected pos 704 vs 598")]
)
def test_a_full_disk_keeps_what_is_there_and_says_how_much_is_missing(
    folder: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    write(folder, 10)
    write(folder, 20)

    def save(path: Path) -> None:
        path.write_bytes(b"the first half")
        raise error

    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1_234_567))
    with refused(
        file=folder / "step-00000030",
        problem=f"the checkpoint could not be written ({error})",
        hint="it needs 20,000,000 bytes, 1,234,567 are free",
    ):
        write_checkpoint(folder, 30, 20_000_000, save)
    assert steps(folder) == [10, 20]
    found = newest_checkpoint(folder, warnings.append)
    assert found is not None and found.step == 20


def test_room_is_wanted_for_four_checkpoints_and_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4_100))
    check_disk_space(tmp_path, 1_000, 100)
    with refused(where=tmp_path, problem="the disk has 4,100 bytes free", expected="at least 4,101 for the..."):
        check_disk_space(tmp_path, 1_000, 101)
    folder = tmp_path / "checkpoints" / "step-00000010"  # it will be replaced
    folder.mkdir(parents=True)
    (folder / "checkpoint.ckpt").write_bytes(b" " * 900)
    check_disk_space(tmp_path, 1_000, 1_000)
    with refused(where=tmp_path, problem="the disk has 4,100 bytes free", expected="at least 4,101 for the..."):
        check_disk_space(tmp_path, 1_000, 1_001)


def test_progress_is_a_checkpoint_or_a_finished_part(tmp_path: Path) -> None:
    assert not holds_progress(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "checkpoints/.step-00000010.unfinished").mkdir(parents=True)
    (tmp_path / "seed-1/checkpoints").mkdir(parents=True)
    (tmp_path / "model.safetensors").touch()
    assert not holds_progress(tmp_path)
    (tmp_path / "seed-1" / FINISHED).touch()
    assert holds_progress(tmp_path)
    (tmp_path / "seed-1" / FINISHED).unlink()
    for folder in (tmp_path / "seed-2/checkpoints", tmp_path / "checkpoints"):
        write(folder, 10)
        assert holds_progress(tmp_path)
        remove_checkpoints(tmp_path)
        assert not holds_progress(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["logs", "model.safetensors", "seed-1", "seed-2"]
