from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from domainbert.base.files import write_text
from domainbert.metrics.headline import Headline
from domainbert.tuning.trial_values import MetricStream, NoSuchMetric


def test_evaluations_are_those_of_the_first_training(tmp_path: Path) -> None:
    stream = MetricStream(tmp_path, ["validation/f1"])
    assert stream.new_values() == []
    log = tmp_path / "seed-2" / "logs" / "metrics.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(
        '{"step": 1, "train/loss": 3.0}\n{"step": 4, "validation/f1": 0.25}\n{"step": 8, "validation/f1": 0.'
    )
    assert stream.new_values() == [0.25]
    assert stream.new_values() == []
    with open(log, "a") as file:
        file.write('5}\n{"step": 12, "validation/f1": NaN}\n')
    other = tmp_path / "seed-1" / "logs" / "metrics.jsonl"
    other.parent.mkdir(parents=True)
    other.write_text('{"step": 4, "validation/f1": 0.75}\n')
    new = stream.new_values()
    assert new[0] == 0.5 and new[1] != new[1]
    assert len(stream.values) == 3


def test_a_resumed_training_repeats_nothing(tmp_path: Path) -> None:
    """What a process writes that goes on from a checkpoint replaces the file, shorter at first."""
    stream, log = MetricStream(tmp_path, ["validation/f1"]), tmp_path / "logs" / "metrics.jsonl"
    log.parent.mkdir()
    lines = [f'{{"step": {step}, "validation/f1": 0.{step}}}\n' for step in range(1, 5)]
    for shown, new in [(3, [0.1, 0.2, 0.3]), (1, []), (4, [0.4])]:
        temporary = log.with_suffix(".tmp")
        temporary.write_text("".join(lines[:shown]))
        os.replace(temporary, log)
        assert stream.new_values() == new


def test_a_later_step_shows_that_the_training_goes_on(tmp_path: Path) -> None:
    stream, log = MetricStream(tmp_path, ["validation/f1"]), tmp_path / "logs" / "metrics.jsonl"
    log.parent.mkdir()
    lines = [
        '{"step": 50, "train/loss": 3.0}\n',
        '{"step": 50, "validation/f1": 0.25}\n',
        '{"step": 60, "train/loss": 2.0}\n',
        '{"step": 100, "validation/f1": 0.5}\n',
        '{"step": 100, "train/loss": 1.0}\n',
    ]
    found = []
    for shown in (1, 2, 3, 4, 5, 2):  # at last as after the restart from a checkpoint
        log.write_text("".join(lines[:shown]) + '{"step": 150, "trai')
        stream.new_values()
        found.append((len(stream.values), stream.num_continued))
    assert found == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 1), (2, 1)]


def test_a_stage_has_started_when_it_writes_its_settings(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    for before in (False, True):
        stream = MetricStream(tmp_path, ["validation/f1"])
        assert config.exists() == before and not stream.has_started
        write_text(config, "x: 1\n")  # the same text in a new file
        assert stream.has_started


F1 = Headline("f1", "F1")


def logged(folder: Path, *rows: tuple[float, float]) -> None:
    """Rows of F1 and loss."""
    (folder / "logs").mkdir(parents=True)
    measured = [{"step": n, "validation/f1": f1, "validation/loss": loss} for n, (f1, loss) in enumerate(rows, 1)]
    lines = [f'{{"step": 1, "train/loss": 1.0}}\n{json.dumps(row)}\n' for row in measured]
    (folder / "logs" / "metrics.jsonl").write_text("".join(lines))


def test_values_are_those_of_the_evaluation_that_the_stage_would_keep(tmp_path: Path) -> None:
    logged(tmp_path, (float("nan"), 9.0), (0.5, 0.75), (0.25, 0.5), (0.5, 0.625), (0.75, 1.0))
    by_f1 = MetricStream(tmp_path, ["validation/f1"], F1).new_values()
    assert by_f1[0] != by_f1[0] and by_f1[1:] == [0.5, 0.5, 0.5, 0.75]
    assert MetricStream(tmp_path, ["validation/loss"], F1).new_values() == [9.0, 0.75, 0.75, 0.75, 1.0]
    lowest = MetricStream(tmp_path, ["validation/f1"], Headline("loss", "loss", "minimize")).new_values()
    assert lowest[1:] == [0.5, 0.25, 0.25, 0.25]
    assert MetricStream(tmp_path, ["validation/loss"]).new_values() == [9.0, 0.75, 0.5, 0.625, 1.0]


def test_what_is_not_measured_is_told_at_the_first_evaluation(tmp_path: Path) -> None:
    logged(tmp_path, (0.5, 1.0))
    with pytest.raises(NoSuchMetric) as caught:
        MetricStream(tmp_path, ["validation/f1", "validation/f2"]).new_values()
    assert (caught.value.name, caught.value.names) == ("validation/f2", ["validation/f1", "validation/loss"])
