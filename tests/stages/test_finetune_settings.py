"""Settings of fine-tuning that are off unless told: each resumes to the bit, and micro-batches change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from domainbert.base.errors import DomainbertError
from domainbert.stages.finetune import Finetune
from domainbert.tasks.extra_losses_config import AdversarialConfig, RDropConfig
from domainbert.tasks.ner.config import Ner
from domainbert.training.optim_config import AveragingConfig, OptimConfig
from tests.resuming import TRAINING, Work, assert_same_outcome

SETTINGS: dict[str, dict[str, Any]] = {
    "ema": {"averaging": {"name": "ema", "decay": 0.8}},
    "last": {"averaging": {"name": "last", "fraction": 0.6}},
    "frozen": {"frozen_layers": 1},
    "adversarial and r_drop": {"adversarial": {"epsilon": 0.5}, "r_drop": {"alpha": 0.5}},
}
TOGETHER: dict[str, Any] = {
    "averaging": AveragingConfig("ema", decay=0.8),
    "frozen_layers": 0,
    "adversarial": AdversarialConfig(0.5),
    "r_drop": RDropConfig(0.5),
}


@pytest.mark.parametrize("name", SETTINGS)
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


@pytest.mark.parametrize("task", ["ner", "classification"])
def test_micro_batches_change_nothing(runs: Any, task: str) -> None:
    """With all settings at once, dropout, and texts of several windows."""
    changes = {"max_length": 16, "batch_size": 32, "max_epochs": 2, "seeds": (1,), **TOGETHER}
    changes["optim"] = OptimConfig(lr=1e-3, eps=1e-4)  # a large eps: Adam divides rounding errors by tiny moments
    folders = [runs.finetune(f"settings-{task}-{n}", task, **changes, micro_batch_size=n) for n in (None, 8, 1)]
    whole, *parts = [load_file(folder / "seed-1/model.safetensors") for folder in folders]
    for part in parts:
        assert max(float((whole[key] - part[key]).abs().max()) for key in whole) < 2e-5


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"averaging": AveragingConfig("ema"), "trainer": {"strategy": "fsdp"}}, "averaging: needs whole weights"),
        ({"adversarial": AdversarialConfig(), "trainer": {"strategy": "fsdp"}}, "adversarial, r_drop: run a model"),
        ({"r_drop": RDropConfig(), "trainer": {"strategy": "fsdp"}}, "adversarial, r_drop: run a model"),
        ({"averaging": AveragingConfig("last"), "patience": 2}, "averaging: last, with patience: 2; a training that"),
    ],
)
def test_settings_that_do_not_go_together(changes: dict[str, Any], message: str) -> None:
    usual = {"model": Path("model"), "task": Ner(), "train": Path("a.conll"), "validation": Path("b.conll")}
    with pytest.raises(DomainbertError, match=message):
        Finetune(**usual, **changes)
