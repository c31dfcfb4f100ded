"""Settings of fine-tuning that are off by default: each resumes to the bit, and micro-batches change nothing."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from domainbert.base.run_record import read_record
from domainbert.data.packing import collate
from domainbert.distillation.prediction_config import SoftTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.packed import Packed
from domainbert.models.folder import open_model
from domainbert.serving.loaders import load_classifier, load_tagger
from domainbert.stages.distill_task import distill_task
from domainbert.stages.finetune import Finetune
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.multi_label.config import MultiLabel
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.task import task_class, task_from_model_folder
from domainbert.training.config import AveragingConfig, OptimConfig
from tests import forked
from tests.refusals import command_refused, refused
from tests.resuming import TRAINING, Work, assert_same_outcome

SETTINGS: dict[str, dict[str, Any]] = {
    "ema": {"averaging": {"name": "ema", "decay": 0.8}, "frozen_layers": 1},
    "last": {"averaging": {"name": "last", "fraction": 0.6}},
}


@pytest.mark.parametrize("name", ["ema", pytest.param("last", marks=pytest.mark.slow)])
def test_a_training_that_is_stopped_gives_the_same(runs: Any, tmp_path: Path, one_thread: None, name: str) -> None:
    """With dropout, an accumulation of two, and a stop within the second epoch of four."""
    files = {split: str(runs.labelled("ner", split)) for split in ("train", "validation")}
    usual = {**TRAINING, **files, "model": str(runs / "pretrain"), "task": "Ner", "batch_size": 24, "max_epochs": 4}
    usual |= {"optim": {"lr": 5e-3}, "micro_batch_size": 12, **SETTINGS[name]}
    work = Work(tmp_path)
    assert work.run("finetune", "whole", usual) == 0
    for stop in (7, 13):
        assert work.run("finetune", "parts", usual, "--resume", "auto", stop=(1, stop)) == 75
    assert work.run("finetune", "parts", usual, "--resume", "auto") == 0
    assert work.trained == 2 * [(1, step) for step in range(20)]
    assert_same_outcome(work / "whole", work / "parts")


def test_what_is_frozen_stays_as_it_was(runs: Any) -> None:
    """To the bit, embeddings of words that occur too, and with weight decay."""
    optim = OptimConfig(lr=5e-3, weight_decay=0.5)
    folder = runs.finetune("frozen", "ner", max_epochs=1, seeds=(1,), frozen_layers=1, optim=optim)
    before, after = (load_file(one / "model.safetensors") for one in (runs / "pretrain", folder / "seed-1"))
    encoder = [name for name in after if name.startswith("bert.")]
    frozen = [name for name in encoder if name.startswith(("bert.embeddings.", "bert.encoder.layer.0."))]
    assert 20 < len(frozen) < len(encoder)
    for name in encoder:
        assert bool((before[name] == after[name]).all()) == (name in frozen), name


@pytest.mark.parametrize("init", ["pretrained", "random"])
def test_dropout_is_that_of_the_stage_and_the_folder_keeps_its_own(runs: Any, tmp_path: Path, init: str) -> None:
    """To the bit what a folder gives whose own dropout is that."""
    changes = {"max_epochs": 1, "seeds": (1,), "optim": OptimConfig(lr=5e-3), "init": init}
    other, config = tmp_path / "other", json.loads((runs / "pretrain/config.json").read_text())
    rates = {name: 0.3 for name in config if name.endswith("dropout_prob")}
    assert len(rates) == 2 and {config[name] for name in rates} == {0.1}
    shutil.copytree(runs / "pretrain", other, ignore=shutil.ignore_patterns("checkpoints", "logs"))
    (other / "config.json").write_text(json.dumps(config | rates))
    usual, higher, own = (
        runs.finetune(f"dropout-{init}-{name}", "ner", **changes, **more) / "seed-1"
        for name, more in {"usual": {}, "higher": {"dropout": 0.3}, "own": {"model": other}}.items()
    )
    weights = [(folder / "model.safetensors").read_bytes() for folder in (usual, higher, own)]
    assert weights[0] != weights[1] == weights[2]
    assert json.loads((higher / "config.json").read_text())["hidden_dropout_prob"] == 0.1


def loss_of_classifier(runs: Any, folder: Path) -> float:
    """Cross-entropy of the validation texts, from what the saved model predicts."""
    texts = [json.loads(line) for line in runs.labelled("classification", "validation").read_text().splitlines()]
    found = load_classifier(folder, "32-true").predict_texts([text["text"] for text in texts])
    return -sum(math.log(one.scores[text["label"]]) for one, text in zip(found, texts, strict=True)) / len(texts)


@pytest.mark.parametrize(
    ("metric", "direction"), [pytest.param("accuracy", "maximize", marks=pytest.mark.slow), ("loss", "minimize")]
)
def test_epoch_and_seed_are_chosen_by_the_metric_that_is_asked_for(runs: Any, metric: str, direction: str) -> None:
    choose = max if direction == "maximize" else min
    optim = OptimConfig(lr=1e-2, head_lr=1e-2)
    folder = runs.finetune(f"by-{metric}", "classification", max_epochs=3, max_length=32, optim=optim, select_by=metric)
    rows = runs.results[f"by-{metric}"]["seeds"]
    values = {f"seed-{row['seed']}": [one[metric] for one in row["history"]] for row in rows}
    for row in rows:
        mine = values[f"seed-{row['seed']}"]
        assert len(set(mine)) > 1 and row["best_epoch"] == 1 + mine.index(choose(mine))
        assert row["validation"] == row["history"][row["best_epoch"] - 1]
    best = {seed: choose(mine) for seed, mine in values.items()}
    said = json.loads((folder / "seeds.json").read_text())
    assert said == {
        "best": choose(best, key=best.__getitem__),
        "metric": f"validation/{metric}",
        "direction": direction,
        f"validation_{metric}": best,
    }
    if metric == "loss":
        assert best[said["best"]] == pytest.approx(loss_of_classifier(runs, folder), abs=1e-5)


def test_the_loss_of_validation_is_that_of_all_pieces_of_words(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tagger, whose batches have different numbers of them: the loss of one batch with all sentences."""
    monkeypatch.setattr("domainbert.tasks.labelled_data._VALIDATION_TOKENS", 100)
    changes = {"max_epochs": 1, "seeds": (1,), "max_length": 16, "select_by": "loss"}
    folder = runs.finetune("tagger-by-loss", "ner", **changes)
    predictor, (row,) = load_tagger(folder, "32-true"), runs.results["tagger-by-loss"]["seeds"]
    task = task_from_model_folder(open_model(folder / "seed-1"))
    examples = task.encode(Ner().read(runs.labelled("ner", "validation")).items, predictor.tokenizer, 16)
    batch = collate(examples, list(range(len(examples))), predictor.tokenizer)
    tensors = {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}
    with torch.no_grad():
        logits = predictor.model(Packed.of(tensors), tensors["positions"])
    wanted = float(task.loss(logits, tensors)) / len(tensors["targets"])
    assert row["validation"]["loss"] == pytest.approx(wanted, rel=1e-5)
    assert "loss" not in runs.results["ner-pretrained"]["seeds"][0]["validation"]


def test_students_have_averaged_weights_and_a_metric_to_choose_by(runs: Any) -> None:
    """The folder has the validated weights: its loss is the loss of the best epoch."""
    changes: dict[str, Any] = {split: runs.labelled("classification", split) for split in ("train", "validation")}
    changes |= {"teachers": [runs / "classification-pretrained"], "task": Classification(), "losses": [SoftTargets()]}
    changes |= {
        "student": StudentConfig(first_layers=1),
        "batch_size": 16,
        "max_epochs": 3,
        "optim": OptimConfig(lr=5e-3),
    }
    averaging = AveragingConfig("ema", decay=0.9)
    folder = runs.run(
        "student-averaged", distill_task, **runs.training, **changes, averaging=averaging, select_by="loss"
    )
    (row,) = runs.results["student-averaged"]["seeds"]
    assert row["validation"]["loss"] == min(one["loss"] for one in row["history"])
    assert row["validation"]["loss"] == pytest.approx(loss_of_classifier(runs, folder), abs=1e-5)


@pytest.mark.parametrize("kind", [Ner, Classification, MultiLabel])
def test_a_task_measures_what_it_may_be_chosen_by(kind: type[TaskConfig]) -> None:
    metric = task_class(kind)(["O", "B-x", "I-x"]).metric()
    one = {Ner: [[]], Classification: ["O"], MultiLabel: np.zeros((1, 3))}[kind]
    metric.update(one, one)
    assert {one.key for one in (kind().headline, *kind.further)} <= set(metric.compute())


@pytest.mark.parametrize(
    ("changes", "where", "found", "expected"),
    [
        (
            {"averaging": AveragingConfig("ema"), "trainer": {"strategy": "fsdp"}},
            "averaging",
            "with trainer.strategy: fsdp",
            "trainer.strategy: ddp",
        ),
        ({"init": "random", "frozen_layers": 0}, "frozen_layers", "with init: random", "remove it, or..."),
        ({"select_by": "accuracy"}, "select_by", "'accuracy'", "one of f1, macro_f1, precision..."),
        (
            {"averaging": AveragingConfig("last"), "patience": 2},
            "averaging.name",
            "'last' with patience: 2",
            "...: ema...",
        ),
    ],
)
def test_settings_that_do_not_go_together(changes: dict[str, Any], where: str, found: str, expected: str) -> None:
    usual = {"model": Path("model"), "task": Ner(), "train": Path("a.conll"), "validation": Path("b.conll")}
    with refused(where=where, found=found, expected=expected):
        Finetune(**usual, **changes)


def test_they_are_refused_before_anything_is_trained(runs: Any, tmp_path: Path) -> None:
    words = ["--model", str(runs / "pretrain"), "--task", "Ner", "--out", str(tmp_path / "out")]
    words += [f"--{split}={runs.labelled('ner', split)}" for split in ("train", "validation")]
    expected = "one of f1, macro_f1, precision, recall, loss"
    command_refused("finetune", *words, "--select_by", "auc", where="select_by", found="'auc'", expected=expected)
    expected = "at most 2, the number of layers of the encoder"
    command_refused("finetune", *words, "--frozen_layers", "3", where="frozen_layers", found="3", expected=expected)
    assert not (tmp_path / "out").exists()


def test_sharded_weights_are_gathered_for_validation(runs: Any, tmp_path: Path) -> None:
    """In a single process, which shards too: the scores of the same training without `fsdp`, and the best weights."""
    files = [f"--{split}={runs.labelled('ner', split)}" for split in ("train", "validation")]
    options = ["--model", runs / "pretrain", "--task", "Ner", *files, "--max_epochs", 5, "--seeds", "[3]"]
    options += ["--dropout", 0.0, "--precision", "32-true", "--trainer.accelerator", "cpu", "--batch_size", 8]
    options += ["--optim", "{lr: 5e-3, eps: 1e-4}"]  # Adam divides rounding errors by tiny moments
    for strategy in ("auto", "fsdp"):
        forked.domainbert(tmp_path, "finetune", *options, "--trainer.strategy", strategy, "--out", strategy)
    (one,), (other,) = (read_record(tmp_path / name).metrics["seeds"] for name in ("auto", "fsdp"))
    assert 0 < one["best_epoch"] < 5 and one["validation"]["f1"] > 0.0
    for row, wanted in zip(other["history"], one["history"], strict=True):
        assert row == pytest.approx(wanted, rel=1e-5)
    whole, sharded = (load_file(tmp_path / name / "seed-3" / "model.safetensors") for name in ("auto", "fsdp"))
    for name, tensor in whole.items():
        torch.testing.assert_close(sharded[name], tensor, rtol=0.0, atol=1e-5)
