"""The labelled files of a task in a user package are checked before anything runs, as for our own tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from domainbert.cli import main

MODULE = "mine.grade.config"
TASK = {"class_path": f"{MODULE}.Grade"}


def test_its_files_are_read_before_anything_runs(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    graded = "".join(json.dumps({"text": "cash", "grade": grade / 8}) + "\n" for grade in range(8))
    for name in ("train", "validation", "test"):
        Path(f"{name}.jsonl").write_text(graded)
    with open("validation.jsonl", "a") as file:
        file.write('{"text": "cash", "grade": 2}\n')
    stages: dict[str, Any] = {"grades": {"stage": "finetune", "model": str(runs / "pretrain"), "task": TASK}}
    stages["grades"] |= {"train": "train.jsonl", "validation": "validation.jsonl"}
    stages["result"] = {"stage": "evaluate", "models": {"a": str(runs / "ner-pretrained")}, "task": TASK}
    stages["result"] |= {"test": "test.jsonl", "train": "train.jsonl"}
    assert run(stages) == 2
    said = capsys.readouterr().err
    assert "validation.jsonl:9: 'grade' is 2; expected a number from 0 to 1" in said
    assert not Path("run/grades").exists()
    assert "train: the scores of grade do not use the training set" in said
    del stages["result"]["train"]
    Path("validation.jsonl").write_text(graded)
    assert run(stages) == 2
    assert "seed-1' is for ner; expected a model for grade" in capsys.readouterr().err.replace("seed-2", "seed-1")


def run(stages: dict[str, Any]) -> int:
    Path("recipe.yaml").write_text(yaml.safe_dump({"out": "run", "stages": stages}))
    return main(["run", "recipe.yaml", "--allow-import", MODULE])
