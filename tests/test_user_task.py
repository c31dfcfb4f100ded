"""A task in a package of the user's own, which domainbert has never heard of, goes through every stage.

It predicts a number, and less of its headline is better: nothing of it is like the tasks that come with domainbert.
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

import domainbert
from domainbert.base.errors import DomainbertError
from domainbert.cli import main
from domainbert.serving.predictor import load_predictor

MODULE = "tests.user_tasks.grade.config"
ALLOW = ("--allow-import", MODULE)
TASK = {"class_path": f"{MODULE}.Grade"}
TRAINING = {"task": "${task}", "precision": "32-true", "loggers": ["jsonl"], "batch_size": 8, "max_epochs": 4}
TRAINING |= {"train": "train.jsonl", "validation": "validation.jsonl", "optim": {"lr": 2e-3, "head_lr": 5e-3}}
TRAINING |= {"trainer": {"accelerator": "cpu", "devices": 1}}


def graded(path: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """Texts whose grade is the share of good words in them, some longer than a window."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        good = [draw.random() < share for share in [draw.random()] * draw.choice([5, 20, 120])]
        text = " ".join("cash" if one else "prices" for one in good)
        rows.append({"text": text, "grade": sum(good) / len(good)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    monkeypatch.chdir(tmp_path)
    for seed, (name, count) in enumerate({"train": 64, "validation": 24, "test": 40}.items()):
        graded(tmp_path / f"{name}.jsonl", count, seed)
    return tmp_path


def written(name: str, tree: dict[str, Any]) -> str:
    tree = json.loads(json.dumps(tree).replace('"${task}"', json.dumps(TASK)))
    Path(name).write_text(yaml.safe_dump(tree, sort_keys=False))
    return name


def recipe(runs: Any) -> dict[str, Any]:
    student = {**TRAINING, "stage": "distill-task", "teachers": ["@grades"], "student": {"first": 1}}
    student |= {"losses": ["SoftTargets", "HardTargets"], "unlabelled": {"sources": [{"path": "test.jsonl"}]}}
    stages: dict[str, Any] = {
        "grades": {**TRAINING, "stage": "finetune", "model": str(runs / "pretrain"), "seeds": [1, 2]}
    }
    stages["student"] = {**student, "cache": "cache", "top_k": 1}
    models = {"teacher": "@grades", "student": "@student"}
    stages["scores"] = {"stage": "evaluate", "models": models, "task": "${task}", "test": "test.jsonl"}
    stages["said"] = {"stage": "predict", "model": "@grades", "input": "test.jsonl"}
    stages["onnx"] = {"stage": "export", "model": "@grades", "check": "validation.jsonl"}
    return {"out": "run", "stages": stages}


def test_it_goes_through_every_stage(runs: Any, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["run", written("recipe.yaml", recipe(runs)), *ALLOW]) == 0
    printed = capsys.readouterr().out
    fields = json.loads(Path("run/grades/seed-1/config.json").read_text())
    assert (fields["domainbert_task"], fields["problem_type"], fields["id2label"]) == (
        "grade",
        "regression",
        {"0": "grade"},
    )

    noted = json.loads(Path("run/grades/seeds.json").read_text())
    by_seed = noted["validation_mae"]
    assert (noted["metric"], noted["direction"]) == ("validation/mae", "minimize")
    assert noted["best"] == min(by_seed, key=by_seed.get)
    history = json.loads(Path("run/grades/seed-1/training.json").read_text())["history"]
    assert by_seed["seed-1"] == min(row["mae"] for row in history) < max(row["mae"] for row in history)
    assert "| validation mean absolute error | 0." in Path("run/grades/seed-1/README.md").read_text()

    scores = json.loads(Path("run/scores/metrics.json").read_text())
    teacher = scores["systems"]["teacher"]
    assert teacher["interval"][0] < teacher["mae"] < teacher["interval"][1]
    assert teacher["mae_by_seed"].keys() == {"seed-1", "seed-2"} and teacher["cost"]["words_per_second"] > 0
    assert scores["paired"][0]["difference"] == teacher["mae"] - scores["systems"]["student"]["mae"]
    assert f"scores  teacher  mean absolute error  {teacher['mae']:.2f}" in printed
    rows = [json.loads(line) for line in Path("run/scores/predictions/teacher/seed-1.jsonl").read_text().splitlines()]
    errors = [abs(row["gold"] - row["predicted"]) for row in rows]
    assert teacher["mae_by_seed"]["seed-1"] == pytest.approx(sum(errors) / len(errors))

    said = [json.loads(line) for line in Path("run/said/predictions.jsonl").read_text().splitlines()]
    best = load_predictor("run/grades")
    grades = [one.grade for one in best.predict([row["text"] for row in said])]
    assert [row["grade"] for row in said] == pytest.approx(grades, abs=1e-6)
    assert [one.grade for one in load_predictor("run/onnx").predict([row["text"] for row in said])] == pytest.approx(
        grades, abs=1e-4
    )
    files = json.loads(Path("run/onnx/metrics.json").read_text())
    assert files["files"]["model.onnx"]["mae"] == pytest.approx(files["mae"], abs=1e-5)
    assert "# Grader for ONNX Runtime" in Path("run/onnx/README.md").read_text()
    with pytest.raises(DomainbertError, match="is a model with the outputs grade; load_predictor reads it"):
        domainbert.load_tagger("run/grades")


def test_its_files_are_read_before_anything_runs(runs: Any, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("validation.jsonl", "a") as file:
        file.write('{"text": "cash", "grade": 2}\n')
    tree = recipe(runs)
    tree["stages"]["result"] = {"stage": "evaluate", "models": {"a": str(runs / "ner-pretrained")}, "task": "${task}"}
    tree["stages"]["result"] |= {"test": "test.jsonl", "train": "train.jsonl"}
    assert main(["run", written("recipe.yaml", tree), *ALLOW]) == 2
    said = capsys.readouterr().err
    assert "validation.jsonl:25: 'grade' is 2; expected a number from 0 to 1" in said
    assert not Path("run/grades").exists()
    assert "train: tells what training has seen; of no use for grade" in said
    del tree["stages"]["result"]["train"]
    graded(Path("validation.jsonl"), 24, 1)
    assert main(["run", written("recipe.yaml", tree), *ALLOW]) == 2
    assert "seed-1 is for ner; expected grade" in capsys.readouterr().err.replace("seed-2", "seed-1")


@pytest.mark.slow
def test_a_search_with_folds_and_costs(runs: Any, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**TRAINING, "model": str(runs / "pretrain"), "max_epochs": 2}
    tree = {"out": "study", "stage": "finetune", "settings": settings, "trials": 2, "k_folds": 2}
    tree |= {"space": {"optim.lr": {"choices": [1e-3, 1e-9]}}, "sampler": "grid"}
    tree |= {"objective": ["validation/mae", "cost/parameters"]}
    assert main(["tune", "-c", written("tune.yaml", tree), *ALLOW]) == 0, capsys.readouterr()
    with open("study/trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["complete"] * 2
    held = [Path(f"study/folds/fold-{number}/validation.jsonl").read_text().splitlines() for number in (1, 2)]
    assert sorted(held[0] + held[1]) == sorted(Path("train.jsonl").read_text().splitlines())
    best = json.loads(Path("study/study.json").read_text())["best"]
    assert best["values"][0] == min(float(row["validation/mae"]) for row in rows)
