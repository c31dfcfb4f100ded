"""Other seeds for a stage that is finished, or was interrupted: those that are trained already are kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from domainbert.cli import main
from domainbert.settings.yaml_files import dump_yaml
from tests.resuming import TRAINING, Work, assert_same_outcome


@pytest.fixture
def work(tmp_path: Path, one_thread: None) -> Work:
    return Work(tmp_path)


@pytest.fixture
def settings(runs: Any) -> dict[str, Any]:
    files = {split: str(runs.labelled("classification", split)) for split in ("train", "validation")}
    return {
        **TRAINING,
        **files,
        "model": str(runs / "pretrain"),
        "task": "Classification",
        "batch_size": 45,
        "max_epochs": 2,
        "optim": {"lr": 2e-3, "head_lr": 5e-3},
    }


def seeds_trained(work: Work) -> set[int]:
    found, work.trained = {seed for seed, _ in work.trained}, []
    return found


def test_a_seed_that_is_added_is_trained_alone(work: Work, settings: dict[str, Any], capsys: Any) -> None:
    """And the folder is that of a training of all at once, to the byte; so it is when seeds are dropped again."""
    for name, seeds in (("both", [1, 2]), ("other", [2])):
        assert work.run("finetune", name, {**settings, "seeds": seeds}) == 0
    assert work.run("finetune", "out", {**settings, "seeds": [1]}) == 0
    assert seeds_trained(work) == {1, 2}
    assert work.run("finetune", "out", {**settings, "seeds": [1, 2]}) == 0
    assert seeds_trained(work) == {2}
    assert_same_outcome(work / "both", work / "out")
    manifest = json.loads((work / "out/manifest.json").read_text())
    assert manifest["config"]["seeds"] == manifest["seed"] == [1, 2] and manifest["key"] == key(work / "both")

    capsys.readouterr()
    dropped = {**settings, "seeds": [2]}
    assert work.run("finetune", "out", dropped) == 2, "a folder would be lost"
    said = "out: holds other work (seeds: dropped 1; kept 2); expected a new folder, --resume auto to go on, or --force"
    assert said in capsys.readouterr().err
    assert work.run("finetune", "out", dropped, "--resume", "auto") == 0
    assert seeds_trained(work) == set()
    assert "seed-1: removed, it is not among the seeds any more" in capsys.readouterr().out
    assert_same_outcome(work / "other", work / "out")


def key(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["key"])


def test_other_settings_train_all_seeds_anew(work: Work, settings: dict[str, Any], capsys: Any) -> None:
    assert work.run("finetune", "out", {**settings, "seeds": [1]}) == 0
    changed = {**settings, "seeds": [1, 2], "batch_size": 30}
    assert work.run("finetune", "out", changed) == 2
    assert "holds other work (batch_size was 45, is now 30, seeds changed)" in capsys.readouterr().err
    assert seeds_trained(work) == {1}
    assert work.run("finetune", "out", changed, "--force") == 0
    assert seeds_trained(work) == {1, 2}


def test_an_interrupted_stage_keeps_its_seeds_as_well(work: Work, settings: dict[str, Any]) -> None:
    """Of three seeds the first is finished and the second has begun; then the second and a fourth are asked for."""
    assert work.run("finetune", "whole", {**settings, "seeds": [2, 4]}) == 0
    assert work.run("finetune", "out", {**settings, "seeds": [1, 2, 3]}, stop=(2, 2)) == 75
    work.trained = []
    assert work.run("finetune", "out", {**settings, "seeds": [2, 4]}, "--resume", "auto") == 0
    assert work.trained[0] == (2, 3), "from its checkpoint"
    assert seeds_trained(work) == {2, 4}
    assert_same_outcome(work / "whole", work / "out")


def test_a_recipe_that_is_killed_while_a_seed_is_added(runs: Any, work: Work, settings: dict[str, Any]) -> None:
    stages = {
        "tagger": {"stage": "finetune", **settings, "seeds": [1]},
        "result": {
            "stage": "evaluate",
            "models": {"ours": "@tagger"},
            "task": "Classification",
            "test": str(runs.labelled("classification", "test")),
            "bootstrap_resamples": 100,
        },
    }
    (work / "recipe.yaml").write_text(dump_yaml({"out": str(work / "run"), "stages": stages}))
    command = ["run", str(work / "recipe.yaml")]
    with work.watched():
        assert main(command) == 0
    assert seeds_of(work / "run/result") == 1
    with work.watched((2, 1), 15):
        assert main([*command, "--stages.tagger.seeds", "[1, 2]"]) == 75
    assert not (work / "run/tagger/manifest.json").exists(), "neither one seed nor two"
    assert seeds_trained(work) == {1, 2}
    shutil.copytree(work / "run", work / "copy")
    with work.watched():
        assert main([*command, "--stages.tagger.seeds", "[1, 2]"]) == 0
        assert seeds_trained(work) == {2}
        assert seeds_of(work / "run/result") == 2
        assert main([*command, "--out", str(work / "copy")]) == 0, "or not after all"
        assert seeds_trained(work) == set()
    assert seeds_of(work / "copy/result") == 1 and not (work / "copy/tagger/seed-2").exists()


def seeds_of(folder: Path) -> int:
    return int(json.loads((folder / "metrics.json").read_text())["systems"]["ours"]["seeds"])
