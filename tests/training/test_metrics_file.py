from __future__ import annotations

import json
from pathlib import Path

import pytest

from domainbert.training.trainer import MetricsFile


@pytest.fixture
def file(tmp_path: Path) -> MetricsFile:
    return MetricsFile(tmp_path / "logs" / "metrics.jsonl")


def text(file: MetricsFile) -> str:
    return file.path.read_text(encoding="utf-8")


def test_a_line_a_call_with_steps_from_1_and_no_epoch(file: MetricsFile) -> None:
    assert not file.path.parent.exists()
    file.log_metrics({"train/loss": 2, "epoch": 0}, 0)
    file.log_metrics({"validation/f1": 0.5, "validation/loss": 1.25}, 9)
    file.log_metrics({"x": 1.0})
    assert text(file) == (
        '{"step": 1, "train/loss": 2.0}\n'
        '{"step": 10, "validation/f1": 0.5, "validation/loss": 1.25}\n'
        '{"step": 1, "x": 1.0}\n'
    )
    assert (file.name, file.version) == ("metrics", "")


def test_numbers_come_back_to_the_bit(file: MetricsFile) -> None:
    for step in range(100):
        file.log_metrics({"x": 1 / (step + 3)}, step)
    lines = [json.loads(line) for line in text(file).splitlines()]
    assert lines == [{"step": step + 1, "x": 1 / (step + 3)} for step in range(100)]


@pytest.mark.parametrize(("step", "kept"), [(0, 0), (1, 1), (2, 3), (3, 4), (99, 4)])
def test_going_on_drops_the_lines_after_the_step_and_adds_to_the_rest(file: MetricsFile, step: int, kept: int) -> None:
    for at, name in ((0, "train"), (1, "train"), (1, "validation"), (2, "train")):
        file.log_metrics({name: 1.0}, at)
    before = text(file).splitlines(keepends=True)
    file.truncate_after(step)
    assert text(file) == "".join(before[:kept])
    file.log_metrics({"train": 2.0}, step)
    assert text(file).splitlines()[kept:] == [f'{{"step": {step + 1}, "train": 2.0}}']
    assert [path.name for path in file.path.parent.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(
    "torn", [b'{"step": 2, "trai', b'{"step": 2}', bytes(40), bytes(40) + b"\n", b"\xff\xfe\n", b"7\n", b"{}\n"]
)
def test_a_line_that_is_not_as_it_was_written_is_dropped(file: MetricsFile, torn: bytes) -> None:
    """A killed process leaves half a line, a machine that lost power zeros."""
    file.log_metrics({"train": 1.0}, 0)
    with open(file.path, "ab") as stream:
        stream.write(torn)
    file.truncate_after(2)
    assert text(file) == '{"step": 1, "train": 1.0}\n'


def test_going_on_without_a_file_makes_none(file: MetricsFile) -> None:
    file.truncate_after(5)
    assert not file.path.exists()
