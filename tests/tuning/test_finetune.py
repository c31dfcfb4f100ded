"""The search over real fine-tuning, on tiny data."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forked import SECONDS


def domainbert(folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "domainbert.cli", *words]
    result = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, timeout=SECONDS)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def settings(runs: Any, **changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"model": str(runs / "pretrain"), "task": "Ner", "batch_size": 8, "max_epochs": 3}
    usual |= {"train": str(runs.labelled("ner", "train")), "validation": str(runs.labelled("ner", "validation"))}
    usual |= {"precision": "32-true", "trainer": {"accelerator": "cpu", "devices": 1}, "loggers": ["jsonl"]}
    return {"out": "study", "stage": "finetune", "settings": {**usual, **changes}}


@pytest.mark.slow
def test_finetune_with_the_best_settings_is_the_trial_again_to_the_bit(runs: Any, tmp_path: Path) -> None:
    space = {"optim.lr": {"low": 1e-4, "high": 5e-3, "log": True}, "batch_size": {"choices": [4, 8]}}
    config = {**settings(runs), "space": space, "trials": 3}
    (tmp_path / "tune.yaml").write_text(yaml.safe_dump(config))
    said = domainbert(tmp_path, "tune", "-c", "tune.yaml")
    assert "trials: 3 (" in said
    summary = json.loads((tmp_path / "study/study.json").read_text())
    domainbert(tmp_path, "finetune", "-c", "study/best.yaml")
    again = json.loads((tmp_path / "study/best/run.json").read_text())
    assert again["metrics"]["validation_f1"] == summary["best"]["values"][0]
    trial = tmp_path / f"study/trials/{summary['best']['trial']:05d}/run"
    weights = Path("seed-1/model.safetensors")
    assert (trial / weights).read_bytes() == (tmp_path / "study/best" / weights).read_bytes()
    with open(tmp_path / "study/trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["evaluations"] == "3" and {row["state"] for row in rows} <= {"complete", "pruned"}
    pruned = [tmp_path / f"study/trials/{int(row['trial']):05d}/run" for row in rows if row["state"] == "pruned"]
    assert [folder for folder in pruned if list(folder.glob("*/checkpoints"))] == []


@pytest.mark.slow
def test_folds_and_costs(runs: Any, tmp_path: Path) -> None:
    config = {
        **settings(runs, max_epochs=1),
        "space": {"optim.lr": {"low": 1e-4, "high": 5e-3, "log": True}},
        "trials": 1,
        "k_folds": 2,
    }
    config["objective"] = ["validation/f1", "cost/latency_1", "cost/parameters"]
    del config["settings"]["validation"]  # the folds have theirs
    (tmp_path / "tune.yaml").write_text(yaml.safe_dump(config))
    domainbert(tmp_path, "tune", "-c", "tune.yaml")
    summary = json.loads((tmp_path / "study/study.json").read_text())
    folds = [json.loads((tmp_path / f"study/trials/00000/fold-{n}/run.json").read_text()) for n in (1, 2)]
    f1, latency, parameters = summary["best"]["values"]
    assert f1 == sum(fold["metrics"]["seeds"][0]["validation"]["f1"] for fold in folds) / 2
    assert (
        latency > 0 and parameters == json.loads((tmp_path / "study/trials/00000/cost.json").read_text())["parameters"]
    )
    assert summary["direction"] == ["maximize", "minimize", "minimize"] and summary["pareto_front"] == [0]
    best = yaml.safe_load((tmp_path / "study/best.yaml").read_text())
    assert "validation" not in best and "--validation FILE" in (tmp_path / "study/best.yaml").read_text()
    assert best["train"] == str(runs.labelled("ner", "train"))


@pytest.mark.slow
def test_a_trial_on_two_ranks_is_pruned(runs: Any, tmp_path: Path) -> None:
    """All processes of the trial end, and the search goes on."""
    ranks = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}
    good, bad = {"optim.lr": 3e-3}, {"optim.lr": 1e-9}
    config = {**settings(runs, max_epochs=8, trainer=ranks), "space": {"optim.lr": {"choices": [3e-3, 1e-9]}}}
    config |= {"trials": 2, "enqueue": [good, bad]}
    (tmp_path / "tune.yaml").write_text(yaml.safe_dump(config))
    said = domainbert(tmp_path, "tune", "-c", "tune.yaml")
    with open(tmp_path / "study/trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["complete", "pruned"], said
    assert rows[0]["evaluations"] == "8" and int(rows[1]["evaluations"]) < 8
