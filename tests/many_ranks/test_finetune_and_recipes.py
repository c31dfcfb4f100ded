"""Fine-tuning and whole recipes by several processes."""

from __future__ import annotations

import json

import pytest
import yaml
from safetensors.torch import load_file

pytestmark = pytest.mark.slow
CLOSE = 1e-5


@pytest.fixture(scope="module")
def tagger(trainings, commands):
    """Two seeds, fine-tuned by one process."""
    trainings.run(commands["domainbert"](*trainings.finetune("tagger")))
    return trainings / "tagger"


def seeds_of(trainings, out):
    return trainings.json(out, "run.json")["metrics"]["seeds"]


def weights_differ(one, other):
    """The largest difference between two model folders."""
    found, expected = (load_file(path / "model.safetensors") for path in (one, other))
    assert found.keys() == expected.keys()
    return max(float((found[name] - tensor).abs().max()) for name, tensor in expected.items())


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_fine_tune_as_one(trainings, commands, tagger, strategy):
    """Both seeds in one command; each keeps the weights of its best epoch, which is not the last one."""
    out = f"tagger-{strategy}"
    words = trainings.finetune(out, "--trainer.devices", "2", "--trainer.strategy", strategy)
    trainings.run(commands["domainbert"](*words))
    for found, expected in zip(seeds_of(trainings, out), seeds_of(trainings, "tagger"), strict=True):
        for row, wanted in zip(found["history"], expected["history"], strict=True):
            assert row == pytest.approx(wanted, rel=CLOSE)
        seed = f"seed-{found['seed']}"
        assert found["best_epoch"] == expected["best_epoch"] > 0
        assert weights_differ(trainings / out / seed, tagger / seed) < CLOSE
        losses = [trainings.lines(f"{folder}/{seed}", "train/loss") for folder in (out, "tagger")]
        assert losses[0] == pytest.approx(losses[1], abs=CLOSE)
    assert {row["best_epoch"] for row in seeds_of(trainings, out)} != {5}
    assert trainings.json(out, "seeds.json") == trainings.json("tagger", "seeds.json")


def test_settings_that_are_off_unless_told_by_two_processes(trainings, commands):
    """Averaged weights, frozen embeddings, several passes a step and the loss on validation."""
    settings = ["--averaging.name", "ema", "--averaging.decay", "0.8", "--frozen_layers", "0", "--select_by", "loss"]
    settings += ["--seeds", "[1]", "--max_epochs", "2"]
    settings += ["--optim.eps", "1e-4"]  # Adam divides rounding errors by tiny moments
    for devices in ("1", "2"):
        words = trainings.finetune(f"settings-{devices}", *settings, "--trainer.devices", devices)
        trainings.run(commands["domainbert"](*words))
    (alone,), (both,) = (seeds_of(trainings, f"settings-{devices}") for devices in ("1", "2"))
    for row, wanted in zip(both["history"], alone["history"], strict=True):
        assert row == pytest.approx(wanted, rel=CLOSE)
    assert weights_differ(trainings / "settings-2/seed-1", trainings / "settings-1/seed-1") < CLOSE


@pytest.mark.parametrize(
    ("stage", "losses"),
    [
        ("distill", [{"class_path": "Relations"}]),  # nothing behind the last layer's projections has a gradient
        ("distill", [{"class_path": "SoftTargets"}, {"class_path": "HiddenMSE", "init_args": {"projection": "none"}}]),
        ("distill-task", [{"class_path": "SoftTargets"}, {"class_path": "AttentionMSE"}]),
    ],
)
def test_two_processes_distil_as_one(trainings, commands, tagger, stage, losses, request):
    """Also where the losses do not reach every weight."""
    pretrain = yaml.safe_load((trainings / "pretrain.yaml").read_text())
    finetune = yaml.safe_load((trainings / "finetune.yaml").read_text())
    settings = {name: pretrain[name] for name in ("precision", "loggers", "trainer", "batch_size") if name in pretrain}
    settings |= {"losses": losses, "student": {"first_layers": 1}, "dropout": 0.0, "optim": {"lr": 1e-3, "eps": 1e-3}}
    if stage == "distill":
        settings |= {"teachers": [str(trainings / "alone")], "prepared": pretrain["prepared"]}
        settings |= {"budget": {"max_steps": 4}, "max_length": pretrain["max_length"]}
    else:
        settings |= {name: finetune[name] for name in ("task", "train", "validation", "batch_size")}
        settings |= {"teachers": [str(tagger / "seed-1")], "max_epochs": 1}
    folder = trainings / f"distil-{request.node.callspec.id}"
    folder.mkdir()
    (folder / "stage.yaml").write_text(yaml.safe_dump(settings))
    for devices in ("1", "2"):
        words = [stage, "-c", str(folder / "stage.yaml"), "--out", str(folder / devices), "--trainer.devices", devices]
        trainings.run(commands["domainbert"](*words))
    seed = "" if stage == "distill" else "seed-1"
    assert weights_differ(folder / "2" / seed, folder / "1" / seed) < CLOSE


@pytest.mark.parametrize("devices", [2, 4])
def test_equal_weights_have_exactly_equal_scores(trainings, commands, tagger, devices):
    """Validation counts each of the 21 sentences once, also where they do not divide by the number of processes."""
    still = ["--model", str(tagger / "seed-1"), "--optim.lr", "1e-30", "--optim.head_lr", "1e-30", "--seeds", "[1]"]
    still += ["--max_epochs", "1"]
    for out, number in (("still-1", 1), (f"still-{devices}", devices)):
        if not (trainings / out).exists():
            trainings.run(commands["domainbert"](*trainings.finetune(out, *still, "--trainer.devices", str(number))))
    alone, many = (seeds_of(trainings, out)[0]["validation"] for out in ("still-1", f"still-{devices}"))
    assert many == alone
    assert alone["f1"] == seeds_of(trainings, "tagger")[0]["validation"]["f1"] > 0.0


def test_fewer_validation_items_than_devices_is_an_error(trainings, commands):
    """The other process has nothing to score: both end, with a sentence, and nothing stays."""
    (trainings / "one.conll").write_text("Rates O\n", encoding="utf-8")
    (trainings / "labelled.conll").write_text("Rates B-X\n\nfall O\n" * 8, encoding="utf-8")
    options = ["--validation", str(trainings / "one.conll"), "--train", str(trainings / "labelled.conll")]
    words = trainings.finetune("few", *options, "--trainer.devices", "2")
    said = trainings.run(commands["domainbert"](*words), code=2).said
    assert "validation: found fewer items than devices (2); use fewer devices" in said
    assert not (trainings / "few").exists()


def recipe_by_two(trainings, name):
    """Write the recipe as a new file, with two processes for each training."""
    recipe = yaml.safe_load((trainings / "recipe.yaml").read_text(encoding="utf-8"))
    recipe["out"] = str(trainings / name)
    for stage in ("pretrain", "tagger"):
        recipe["stages"][stage]["trainer"]["devices"] = 2
    path = trainings / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("launcher", ["own", "torchrun"])
def test_a_recipe_with_stages_for_one_and_for_two_processes(trainings, commands, tagger, launcher):
    """Stages that do not train are run once; the processes of one training are not seen by the next stage."""
    recipe = recipe_by_two(trainings, f"recipe-{launcher}")
    if launcher == "own":
        words = commands["domainbert"]("run", recipe)
    else:
        words = commands["torchrun"]("run", recipe, standalone=None, nproc_per_node=2)
    said = trainings.run(words).said
    for stage in ("sample", "vocab", "prepare", "pretrain", "tagger", "result"):
        assert said.count(f"{stage}: running") == said.count(f"{stage}: done") == 1
        assert trainings.json(f"recipe-{launcher}/{stage}", "run.json")["state"] == "done"
    assert weights_differ(trainings / f"recipe-{launcher}/pretrain", trainings / "alone") < CLOSE
    scores = [trainings.json(out, "seeds.json") for out in (f"recipe-{launcher}/tagger", "tagger")]
    assert scores[0]["validation_f1"] == pytest.approx(scores[1]["validation_f1"], rel=CLOSE)
    assert json.loads((trainings / f"recipe-{launcher}/results.json").read_text())["stages"].keys() >= {"result"}
    again = trainings.run(words).said
    assert again.count("skipped (done)") == 7, "and the check"


def test_two_processes_classify_as_one(trainings, commands):
    """Weights, smoothed labels, drawn classes, a temperature, and a slice of which one process has nothing."""
    folder = trainings / "classes"
    folder.mkdir()
    words = ["cash", "transfers", "raised", "school", "attendance", "of", "poor", "girls", "by", "a", "lot"]
    rows = [
        {"text": " ".join(words[: 2 + k % 9]), "label": "up" if k % 9 > 3 else "down", "language": "en" if k else "fr"}
        for k in range(32)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    learning = {
        "format": {"slice_keys": ["language"]},
        "mean_over": "language",
        "calibrate": True,
        "label_smoothing": 0.1,
    }
    settings = yaml.safe_load((trainings / "finetune.yaml").read_text())
    settings |= {"train": str(folder / "rows.jsonl"), "validation": str(folder / "rows.jsonl"), "max_epochs": 3}
    settings |= {"seeds": [1], "batch_size": 8}
    for name, more in (("weighted", {"class_weights": "balanced"}), ("drawn", {"balanced_sampling": True})):
        task = {"class_path": "Classification", "init_args": learning | more}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings | {"task": task}))
        found = []
        for devices in ("1", "2"):
            out = f"classes/{name}-{devices}"
            words = ["-c", str(folder / f"{name}.yaml"), "--out", str(trainings / out), "--trainer.devices", devices]
            trainings.run(commands["domainbert"]("finetune", *words))
            found.append(seeds_of(trainings, out)[0]["history"])
        for one, other in zip(*found, strict=True):
            assert one == pytest.approx(other, rel=1e-3)
        assert {"temperature", "ece", "f1_over_language"} <= set(found[0][0])
        assert weights_differ(folder / f"{name}-2/seed-1", folder / f"{name}-1/seed-1") < CLOSE
