"""The recipe of all tasks on synthetic data, in the precision that a user gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domainbert.cli import main
from tests.samples.task_data import write_task_data

RECIPE = Path(__file__).parents[2] / "configs" / "tasks.yaml"
SIZES = {"train": 120, "validation": 40, "test": 60}
HEADLINES = {"relations": "macro_f1", "pairs": "f1", "words": "macro_f1", "trees": "las", "questions": "f1"}


@pytest.mark.slow  # minutes on a processor that multiplies bf16 slowly
def test_every_task_learns_in_sixteen_bits(runs, tmp_path, one_thread):
    write_task_data(tmp_path / "data", 0, SIZES, SIZES)
    words = ["run", str(RECIPE), "--out", str(tmp_path / "run"), "--vars.data", str(tmp_path / "data")]
    words += ["--vars.model", str(runs / "vocab")]
    for task in HEADLINES:
        stage = f"--stages.train-{task}"
        words += [f"{stage}.init", "random", f"{stage}.encoder", "tiny", f"{stage}.max_length", "256"]
        words += [f"{stage}.max_epochs", "2", f"{stage}.precision", "bf16-mixed"]
        words += [f"{stage}.trainer", '{"accelerator": "cpu", "devices": 1}', f"{stage}.loggers", "[]"]
    assert main(words) == 0
    scores = {}
    for task, headline in HEADLINES.items():
        system = json.loads((tmp_path / "run" / task / "metrics.json").read_text())["systems"][task]
        low, high = system["interval"]
        scores[task] = system[headline]
        assert 0 <= low <= scores[task] <= high <= 1, task
    assert scores["trees"] > 0 and scores["questions"] > 0 and scores["pairs"] > 0
