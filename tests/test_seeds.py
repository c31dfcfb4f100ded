"""Other seeds for a stage that is finished, or was interrupted: those that are trained already are kept."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.base.freshness import Freshness
from domainbert.cli import main
from domainbert.metrics.headline import Headline
from domainbert.settings.yaml_files import dump_yaml
from domainbert.stages.finetune import finetune
from domainbert.stages.labelled_training import train_seeds
from tests.refusals import refused
from tests.resuming import TRAINING, Work, assert_same_outcome


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
    """The folder equals a training of all seeds at once, to the byte; also after seeds are dropped again."""
    for name, seeds in (("both", [1, 2]), ("other", [2])):
        assert work.run("finetune", name, {**settings, "seeds": seeds}) == 0
    assert work.run("finetune", "out", {**settings, "seeds": [1]}) == 0
    assert seeds_trained(work) == {1, 2}
    assert work.run("finetune", "out", {**settings, "seeds": [1, 2]}) == 0
    assert seeds_trained(work) == {2}
    assert_same_outcome(work / "both", work / "out")
    manifest = json.loads((work / "out/run.json").read_text())
    assert manifest["config"]["seeds"] == manifest["seed"] == [1, 2] and manifest["key"] == key(work / "both")

    capsys.readouterr()
    dropped = {**settings, "seeds": [2]}
    assert work.run("finetune", "out", dropped) == 2, "a folder would be lost"
    said = (
        "out: holds output of an earlier run (seeds: dropped 1; kept 2); use another --out, --resume auto to keep "
        "what still fits, or --force to replace it"
    )
    assert said in capsys.readouterr().err
    assert work.run("finetune", "out", dropped, "--resume", "auto") == 0
    assert seeds_trained(work) == set()
    assert "seed-1: removed, because the setting 'seeds' no longer lists it" in capsys.readouterr().out
    assert_same_outcome(work / "other", work / "out")


def key(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["key"])


def test_other_settings_train_all_seeds_anew(work: Work, settings: dict[str, Any], capsys: Any) -> None:
    assert work.run("finetune", "out", {**settings, "seeds": [1]}) == 0
    changed = {**settings, "seeds": [1, 2], "batch_size": 30}
    assert work.run("finetune", "out", changed) == 2
    assert "output of an earlier run (batch_size was 45, is now 30); " in capsys.readouterr().err, "seed 1 is not kept"
    assert seeds_trained(work) == {1}
    assert work.run("finetune", "out", changed, "--force") == 0
    assert seeds_trained(work) == {1, 2}


def test_an_interrupted_stage_keeps_its_seeds_as_well(work: Work, settings: dict[str, Any]) -> None:
    """Of three seeds the first is finished and the second has begun; then the second and a fourth are requested."""
    assert work.run("finetune", "whole", {**settings, "seeds": [2, 4]}) == 0
    assert work.run("finetune", "out", {**settings, "seeds": [1, 2, 3]}, stop=(2, 2)) == 75
    work.trained = []
    assert work.run("finetune", "out", {**settings, "seeds": [2, 4]}, "--resume", "auto") == 0
    assert work.trained[0] == (2, 3), "from its checkpoint"
    assert seeds_trained(work) == {2, 4}
    assert_same_outcome(work / "whole", work / "out")


def test_an_interrupted_stage_tells_which_seeds_it_would_drop(
    work: Work, settings: dict[str, Any], capsys: Any
) -> None:
    settings |= {"max_epochs": 1}
    stages = {"tagger": {"stage": "finetune", **settings, "seeds": [1, 2, 3]}}
    (work / "recipe.yaml").write_text(dump_yaml({"out": str(work / "run"), "stages": stages}))
    command = ["run", str(work / "recipe.yaml")]
    with work.watched((3, 0)):
        assert main(command) == 75
    capsys.readouterr()
    assert main([*command, "--dry-run"]) == 0
    assert "run   tagger (interrupted) -> " in capsys.readouterr().out
    assert main([*command, "--dry-run", "--stages.tagger.seeds", "[5]"]) == 0
    assert "run   tagger (interrupted; seeds: new 5; dropped 1, 2, 3) -> " in capsys.readouterr().out
    assert main(["finetune", "-c", str(work / "run/tagger/config.yaml"), "--seeds", "[3, 4]"]) == 2
    said = "an earlier run (interrupted; seeds: new 4; dropped 1, 2; kept 3); use another --out, --resume auto"
    assert said in capsys.readouterr().err


def test_a_lock_that_was_left_in_a_finished_folder_does_no_harm(work: Work, settings: dict[str, Any]) -> None:
    """The process was killed between the manifest and the end: a sealed folder is finished."""
    settings |= {"max_epochs": 1}
    assert work.run("finetune", "out", {**settings, "seeds": [1]}) == 0
    (work / "out/running.lock").touch()
    assert work.run("finetune", "out", {**settings, "seeds": [1, 2]}) == 0
    assert [seed for seed, step in work.trained if step == 0] == [1, 2]
    assert not (work / "out/running.lock").exists()


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
    assert json.loads((work / "run/tagger/run.json").read_text())["state"] == "stopped", "neither one seed nor two"
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


class Trainings:
    """A fake training of a seed: it writes weights that depend on key and seed, and counts its runs."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.trained: list[int] = []

    def __call__(self, seeds: list[int], key: str = "key", fails: bool = False) -> dict[str, Any]:
        def train(seed: int, folder: Path) -> dict[str, Any]:
            if fails:
                raise DomainbertError("train: no such label")
            self.trained.append(seed)
            (folder / "model.safetensors").write_text(f"{key} {seed} " * 10)
            return {"validation": {"f1": seed / 10}, "warnings": []}

        self.trained = []
        made_from = Freshness({"data": key, "seeds": seeds})
        return train_seeds(self.out, seeds, made_from, Headline("f1", "F1"), train)


@pytest.fixture
def trainings(tmp_path: Path) -> Trainings:
    return Trainings(tmp_path / "out")


def test_a_seed_is_kept_only_for_the_same_key(trainings: Trainings, capsys: Any) -> None:
    first = trainings([1, 2])
    assert first["validation_f1"] == pytest.approx(0.15) and first["best"] == "seed-2"
    assert trainings([1, 2]) == first and trainings.trained == []
    assert capsys.readouterr().out.splitlines() == ["seed-1: already finished", "seed-2: already finished"]
    trainings([2], "other")
    assert trainings.trained == [2]
    assert "seed-2: data was key, is now other; training again" in capsys.readouterr().out
    assert (trainings.out / "seed-2/model.safetensors").read_text().startswith("other 2")


@pytest.mark.parametrize(
    "damage,said",
    [
        (lambda seed: (seed / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda seed: (seed / "model.safetensors").write_text("yek 1 " * 10), "model.safetensors has changed"),
        (
            lambda seed: (seed / "training.json").write_text(""),
            "training.json cannot be read, or was written by an earlier version",
        ),
        (
            lambda seed: (seed / "training.json").write_text("{}"),
            "training.json cannot be read, or was written by an earlier version",
        ),
        (
            lambda seed: (seed / "training.json").write_text("[" * 100_000),
            "training.json cannot be read, or was written by an earlier version",
        ),
        (lambda seed: replace_in(seed / "training.json", "0.1", "0.9"), "training.json has changed"),
    ],
)
def test_a_damaged_seed_is_trained_again(trainings: Trainings, capsys: Any, damage: Any, said: str) -> None:
    first = trainings([1, 2])
    before = (trainings.out / "seed-1/training.json").read_bytes()
    damage(trainings.out / "seed-1")
    assert trainings([1, 2]) == first
    assert trainings.trained == [1]
    assert f"seed-1: {said}; training again" in capsys.readouterr().out
    assert (trainings.out / "seed-1/training.json").read_bytes() == before


def replace_in(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new, 1))


def test_folders_that_are_no_seeds_stay_and_seeds_stay_until_others_are_trained(trainings: Trainings) -> None:
    trainings([1])
    for name in ("seed-corpus", "seed-07-notes", "seed-7"):
        (trainings.out / name).mkdir()
        (trainings.out / name / "mine.txt").write_text("mine")
    with refused(problem="...no such label"):
        trainings([2], fails=True)
    assert (trainings.out / "seed-1/model.safetensors").is_file()
    trainings([3])
    assert {path.name for path in trainings.out.glob("seed-*")} == {"seed-3", "seed-corpus", "seed-07-notes", "seed-7"}
    begun = trainings.out / "seed-4/checkpoints"
    begun.mkdir(parents=True)
    trainings([3])
    assert trainings.trained == [] and not begun.parent.exists()


def test_checkpoints_of_other_settings_are_not_gone_on_from(trainings: Trainings, capsys: Any) -> None:
    with pytest.raises(DomainbertError):
        trainings([1], "one", fails=True)
    checkpoint = trainings.out / "seed-1/checkpoints/step-00000001"
    checkpoint.mkdir()
    with pytest.raises(DomainbertError):
        trainings([1], "one", fails=True)
    assert checkpoint.is_dir()
    capsys.readouterr()
    with pytest.raises(DomainbertError):
        trainings([1], "two", fails=True)
    assert not checkpoint.exists()
    assert "seed-1: data was one, is now two; training again" in capsys.readouterr().out


def test_a_call_from_python_gives_the_numbers_of_its_own_settings(
    work: Work, settings: dict[str, Any], capsys: Any
) -> None:
    """A folder that the command line made is kept for the same settings and inputs, wherever these lie."""
    settings |= {"max_epochs": 1, "seeds": [1]}
    assert work.run("finetune", "out", settings) == 0
    shutil.copytree(work / "out", work / "copy")
    moved = Path(shutil.copytree(settings["model"], work / "elsewhere" / Path(settings["model"]).name))
    with work.watched():
        work.trained = []
        faster = {"model": moved, "micro_batch_size": 5, "loggers": []}
        kept = finetune(out=work / "copy", **{**settings, **faster})
        assert seeds_trained(work) == set()
        other = {**settings, "max_epochs": 3, "optim": {"lr": 1e-2}}
        assert finetune(out=work / "copy", **other) == finetune(out=work / "fresh", **other) != kept
        assert seeds_trained(work) == {1}
        assert_same_outcome(work / "fresh", without_notes(work / "copy"))
        lines = Path(settings["train"]).read_text().splitlines(keepends=True)
        fewer = work / "fewer" / Path(settings["train"]).name
        fewer.parent.mkdir()
        fewer.write_text("".join(lines[:-1]))
        finetune(out=work / "copy", **{**other, "train": fewer})
        assert seeds_trained(work) == {1}


def without_notes(folder: Path) -> Path:
    """Without what the runner, not the stage, has written."""
    for name in ("run.json", "config.yaml"):
        (folder / name).unlink()
    return folder


def test_a_kept_seed_that_is_damaged_while_another_is_added(work: Work, settings: dict[str, Any], capsys: Any) -> None:
    """While the stage is interrupted there is no record that would tell."""
    settings |= {"max_epochs": 1}
    assert work.run("finetune", "whole", {**settings, "seeds": [1, 2]}) == 0
    assert work.run("finetune", "out", {**settings, "seeds": [1, 2]}, stop=(2, 0)) == 75
    with open(work / "out/seed-1/model.safetensors", "r+b") as weights:
        weights.seek(-4, 2)
        weights.write(b"\0\0\0\0")
    assert seeds_trained(work) == {1, 2}
    assert work.run("finetune", "out", {**settings, "seeds": [1, 2]}, "--resume", "auto") == 0
    assert seeds_trained(work) == {1, 2}
    assert "seed-1: model.safetensors " in capsys.readouterr().out
    assert_same_outcome(work / "whole", work / "out")


def test_a_run_ends_with_its_model_and_a_command_that_works(
    work: Work, runs: Any, settings: dict[str, Any], capsys: Any
) -> None:
    """Also if all stages are skipped; the model is the first system of the evaluation, not the last training."""
    settings |= {"max_epochs": 1}
    stages = {name: {"stage": "finetune", **settings, "seeds": [3]} for name in ("ours", "baseline")}
    command = ["run", str(work / "recipe.yaml")]
    model = work / "run/baseline/seed-3"
    for _ in range(2):
        (work / "recipe.yaml").write_text(dump_yaml({"out": str(work / "run"), "stages": stages, "check": False}))
        assert main(command) == 0
        assert main(command) == 0
        said = capsys.readouterr().out
        *_, where, predict = said.splitlines()
        assert "ours: skipped" in said
        assert where == f"model: {model}" and predict.startswith("predict: domainbert predict ")
        test = {"task": "Classification", "test": str(runs.labelled("classification", "test"))}
        models = {"ours": "@ours", "baseline": "@baseline"}
        stages["result"] = {"stage": "evaluate", "models": models, **test, "bootstrap_resamples": 100}
        model = work / "run/ours/seed-3"
    (work / "new.txt").write_text("Prices rose.\n")
    paths = {"FILE": str(work / "new.txt"), "FOLDER": str(work / "labelled")}
    assert main([paths.get(word, word) for word in shlex.split(predict)[2:]]) == 0
    assert json.loads((work / "labelled/predictions.jsonl").read_text())["text"] == "Prices rose."
