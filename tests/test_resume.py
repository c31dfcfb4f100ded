"""A training that is interrupted and goes on gives what an uninterrupted one gives, to the bit."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.data.batches import GlobalOrder, _shuffled_items
from domainbert.pretraining.batches import PackedRowsReader
from domainbert.pretraining.objective import Key
from domainbert.training.checkpoint_files import write_checkpoint
from domainbert.training.module import TrainedModule
from tests.resuming import TRAINING, Work, assert_same_outcome, losses, pretraining

GO_ON = ("--resume", "auto")


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


PRETRAININGS: dict[str, dict[str, Any]] = {
    "adamw, static embeddings": {"static_embeddings": True},
    "workers and micro-batches": {"num_workers": 2, "micro_batch_size": 16},
    "muon with a schedule": {"optim": {"name": "muon", "lr": 2e-3}, "schedule": {"name": "wsd", "warmup_steps": 4}},
    "a checkpoint each step": {"checkpoint_every": 1, "validate_every": 5},
}


@pytest.mark.parametrize(
    "name", [next(iter(PRETRAININGS)), *(pytest.param(name, marks=pytest.mark.slow) for name in list(PRETRAININGS)[1:])]
)
def test_pretraining_that_is_stopped_twice_gives_the_same(runs: Any, work: Work, name: str, capsys: Any) -> None:
    """With dropout, stopped within an epoch, in a step before a validation, and in the second epoch."""
    settings = pretraining(runs / "prepare", **PRETRAININGS[name])
    assert work.run("pretrain", "whole", settings) == 0
    assert work.run("pretrain", "parts", settings, stop=(0, 5)) == 75
    assert status(work / "parts")["state"] == "stopped"
    assert status(work / "parts")["reason"] == "stopped by SIGTERM after step 6; the state is saved"
    assert work.run("pretrain", "parts", settings, *GO_ON, stop=(0, 9), by=signal.SIGUSR1) == 75
    go_on = status(work / "parts")["resume_command"]
    assert go_on == f"domainbert pretrain -c {work / 'parts/config.yaml'} --resume auto"
    assert work.run("pretrain", "parts", settings, *GO_ON) == 0
    assert work.trained == 2 * [(0, step) for step in range(12)], "no step is made twice"
    assert list(losses(work / "parts/logs/metrics.jsonl")) == list(range(1, 13))
    assert_same_outcome(work / "whole", work / "parts")
    assert not (work / "parts/checkpoints").exists() and not (work / "parts/running.lock").exists()
    manifest = json.loads((work / "parts/run.json").read_text())
    assert manifest["resumed"] and [row["step"] for row in manifest["metrics"]["history"]][-1] == 12


def test_ctrl_c_before_the_first_step_of_a_training(runs: Any, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning answers it with `sys.exit(1)`."""
    monkeypatch.setattr(TrainedModule, "on_fit_start", lambda *_: signal.raise_signal(signal.SIGINT))
    ignored_or_not = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        assert work.run("pretrain", "out", pretraining(runs / "prepare")) == 75
    finally:
        signal.signal(signal.SIGINT, ignored_or_not)
    assert status(work / "out")["reason"] == "stopped by SIGINT"


def test_a_training_in_phases_that_is_stopped_before_at_and_after_a_boundary_gives_the_same(
    runs: Any, work: Work
) -> None:
    """Steps 1 to 6 read rows of 16 tokens, the others rows of 64."""
    phases = [{"until": 0.5, "length": 16}, {"length": 64}]
    settings = pretraining(runs / "prepare", max_length=phases, batch_size=16, validate_every=4)
    assert work.run("pretrain", "whole", settings) == 0
    assert work.run("pretrain", "parts", settings, stop=(0, 4)) == 75
    for step in (5, 6):
        assert work.run("pretrain", "parts", settings, *GO_ON, stop=(0, step)) == 75
    assert work.run("pretrain", "parts", settings, *GO_ON) == 0
    assert work.trained == 2 * [(0, step) for step in range(12)], "no step is made twice"
    assert_same_outcome(work / "whole", work / "parts")


@pytest.fixture
def finetuning(runs: Any) -> dict[str, Any]:
    files = {split: str(runs.labelled("ner", split)) for split in ("train", "validation")}
    return {
        **TRAINING,
        **files,
        "model": str(runs / "pretrain"),
        "task": "Ner",
        "batch_size": 24,
        "max_epochs": 8,
        "patience": 2,
        "optim": {"lr": 2e-2, "head_lr": 2e-2},
        "seeds": [1, 2],
    }


def test_finetuning_goes_on_in_the_seed_where_it_was(runs: Any, work: Work, finetuning: dict[str, Any]) -> None:
    """Seed 2 is stopped two epochs after its best one: best weights and patience are as in a whole run."""
    assert work.run("finetune", "whole", finetuning) == 0
    trained, work.trained = work.trained, []
    seeds = json.loads((work / "whole/run.json").read_text())["metrics"]["seeds"]
    best, history = seeds[1]["best_epoch"], seeds[1]["history"]
    assert len(history) == best + 2 < 8 and history[-1]["step"] == 5 * (best + 2), "stopped by patience"
    late = 5 * (best + 1) + 1
    assert work.run("finetune", "parts", finetuning, stop=(1, 7)) == 75
    assert work.run("finetune", "parts", finetuning, *GO_ON, stop=(2, late), by=signal.SIGINT) == 75
    assert status(work / "parts")["reason"] == f"stopped by SIGINT after step {late + 1}; the state is saved"
    weights = (work / "parts/seed-1/model.safetensors").stat()
    assert work.run("finetune", "parts", finetuning, *GO_ON) == 0
    assert (work / "parts/seed-1/model.safetensors").stat().st_mtime_ns == weights.st_mtime_ns
    assert work.trained == trained, "no step is repeated, not even in the finished seed"
    assert_same_outcome(work / "whole", work / "parts")
    assert not list((work / "parts").rglob("checkpoints"))


def test_a_signal_in_the_last_step_of_a_seed_stops_before_the_next(
    runs: Any, work: Work, finetuning: dict[str, Any]
) -> None:
    finetuning |= {"max_epochs": 1, "patience": None}
    assert work.run("finetune", "whole", finetuning) == 0
    trained, work.trained = work.trained, []
    assert work.run("finetune", "parts", finetuning, stop=(1, 4)) == 75
    assert len(work.trained) <= 6, "at most one step of the next seed"
    assert work.run("finetune", "parts", finetuning, *GO_ON) == 0
    assert work.trained == trained
    assert_same_outcome(work / "whole", work / "parts")


ANOTHER: dict[str, tuple[dict[str, Any], str]] = {
    "optim.lr": ({"optim": {"lr": 1e-3}}, "optim.lr was 0.005, is now 0.001"),
    "batch_size": ({"batch_size": 32}, "batch_size was 64, is now 32"),
    "several": (
        {"seed": 3, "optim": {"name": "muon", "lr": 5e-3}},
        "optim.name was adamw, is now muon; seed was 0, is now 3",
    ),
}


@pytest.fixture
def stopped(runs: Any, work: Work) -> dict[str, Any]:
    """Return the settings of a pretraining in `parts`, stopped after step 3."""
    settings = pretraining(runs / "prepare", budget={"max_steps": 5}, validate_every=2)
    assert work.run("pretrain", "parts", settings, stop=(0, 2)) == 75
    return settings


def test_other_settings_are_refused_and_listed(work: Work, stopped: dict[str, Any], capsys: Any) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in (work / "parts").rglob("*"))
    for changes, difference in ANOTHER.values():
        assert work.run("pretrain", "parts", {**stopped, **changes}, *GO_ON) == 2
        said = f"parts: was interrupted, and its settings or inputs have changed ({difference}); undo the change to"
        assert said in capsys.readouterr().err
        assert work.run("pretrain", "parts", {**stopped, **changes}) == 2
        assert said in capsys.readouterr().err
    assert sorted((path, path.stat().st_mtime_ns) for path in (work / "parts").rglob("*")) == before
    assert work.run("pretrain", "parts", stopped, "--resume", "step-3") == 2
    assert "--resume: found 'step-3'; expected 'auto'" in capsys.readouterr().err


def test_other_speed_goes_on_and_what_is_done_is_done(work: Work, stopped: dict[str, Any], capsys: Any) -> None:
    trainer = {**TRAINING["trainer"], "log_every_n_steps": 2}
    speed = {"num_workers": 1, "micro_batch_size": 32, "checkpoint_every": 1, "trainer": trainer}
    assert work.run("pretrain", "parts", {**stopped, **speed}, *GO_ON) == 0
    assert "resuming from step 3 (" in capsys.readouterr().out
    assert work.trained == [(0, step) for step in range(5)]
    assert list(losses(work / "parts/logs/metrics.jsonl")) == [1, 2, 3, 4, 5], "the last one whatever its number"
    for options in ((), GO_ON):
        assert work.run("pretrain", "parts", stopped, *options) == 0
        assert "is already done with these settings and inputs" in capsys.readouterr().out
    assert len(work.trained) == 5


def test_the_same_command_goes_on_after_a_stop_and_after_a_kill_before_the_first_checkpoint(
    work: Work, stopped: dict[str, Any], capsys: Any
) -> None:
    shutil.copytree(work / "parts", work / "killed")
    shutil.rmtree(work / "killed/checkpoints")
    assert work.run("pretrain", "parts", stopped) == 0
    assert "resuming from step 3 (" in capsys.readouterr().out
    assert work.run("pretrain", "killed", stopped) == 0
    assert "going on" not in capsys.readouterr().out
    assert losses(work / "killed/logs/metrics.jsonl") == losses(work / "parts/logs/metrics.jsonl")


def test_force_starts_again(work: Work, stopped: dict[str, Any], capsys: Any) -> None:
    assert work.run("pretrain", "parts", {**stopped, "seed": 1}, "--force", *GO_ON) == 0
    assert work.run("pretrain", "whole", {**stopped, "seed": 1}, *GO_ON) == 0, "and so it does in an empty folder"
    assert "going on" not in capsys.readouterr().out
    assert work.trained == [*((0, step) for step in range(3)), *(2 * [(1, step) for step in range(5)])]
    assert_same_outcome(work / "whole", work / "parts")
    assert not json.loads((work / "parts/run.json").read_text())["resumed"]


def test_a_recipe_goes_on_by_itself(runs: Any, work: Work, capsys: Any) -> None:
    from domainbert.cli import main
    from domainbert.settings.yaml_files import dump_yaml

    settings = pretraining(runs / "prepare", budget={"max_steps": 5}, validate_every=2)
    (work / "recipe.yaml").write_text(dump_yaml({"out": str(work / "run"), "stages": {"pretrain": settings}}))
    command = ["run", str(work / "recipe.yaml")]
    with work.watched((0, 2), signal.SIGTERM):
        assert main(command) == 75
    assert status(work / "run/pretrain")["resume_command"] == f"domainbert run {work / 'recipe.yaml'}"
    assert main([*command, "--stages.pretrain.optim.lr", "1e-3"]) == 2
    said = "pretrain: was interrupted, and its settings or inputs have changed (optim.lr was 0.005, is now 0.001); undo"
    assert said in capsys.readouterr().err
    with work.watched():
        assert main([*command, "--stages.pretrain.num_workers", "1"]) == 0
        assert "resuming from step 3" in capsys.readouterr().out
        assert work.trained == [(0, step) for step in range(5)]
        assert main(command) == 0 and len(work.trained) == 5


@pytest.fixture
def rows_trained(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Epochs and rows (2, R) of every micro-batch that a training step has got."""
    found: list[np.ndarray] = []
    make, begin = PackedRowsReader.batch, TrainedModule.on_train_batch_start

    def named(reader: PackedRowsReader, key: Key) -> dict[str, Any]:
        return make(reader, key) | {"read": np.stack([key.epochs, key.rows])}

    def noted(module: TrainedModule, batch: dict[str, Any], batch_idx: int) -> None:
        found.append(batch["read"].numpy())
        begin(module, batch, batch_idx)

    monkeypatch.setattr(PackedRowsReader, "batch", named)
    monkeypatch.setattr(TrainedModule, "on_train_batch_start", noted)
    return found


def test_every_row_is_read_once_an_epoch_over_two_restarts(
    runs: Any, work: Work, rows_trained: list[np.ndarray]
) -> None:
    settings = pretraining(runs / "prepare", budget={"max_epochs": 2}, batch_size=60, num_workers=1)
    for stop in (8, 9):  # of 19; one epoch ends within step 9
        assert work.run("pretrain", "out", settings, *GO_ON, stop=(0, stop)) == 75
    assert work.run("pretrain", "out", settings, *GO_ON) == 0
    epochs, rows = np.concatenate(rows_trained, axis=1)
    size, steps = int(rows.max()) + 1, len(rows) // 60
    assert steps == -(-2 * size // 60) and size > 500
    wanted = [GlobalOrder(size, 60, seed=0).batch(step) for step in range(steps)]
    assert (epochs == np.concatenate([one for one, _ in wanted])).all()
    assert (rows == np.concatenate([one for _, one in wanted])).all()
    for epoch in (0, 1):
        assert Counter(rows[epochs == epoch].tolist()) == Counter(range(size))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many batches were made, and how many passes were put into order."""
    from domainbert.data import batches

    found: Counter[str] = Counter()
    make, permute = PackedRowsReader.batch, batches.permutation

    def counted_batch(reader: PackedRowsReader, key: Key) -> dict[str, Any]:
        found["batches"] += 1
        return make(reader, key)

    def counted_permutation(size: int, *counters: int) -> np.ndarray:
        found["permutations"] += 1
        return permute(size, *counters)

    monkeypatch.setattr(PackedRowsReader, "batch", counted_batch)
    monkeypatch.setattr(batches, "permutation", counted_permutation)
    return found


def test_going_on_late_takes_no_more_than_going_on_early(runs: Any, work: Work, read: Counter[str]) -> None:
    """A checkpoint of step 2 is passed off as one of step 10, and as one of step 1,000,000; two steps are left."""
    found = {}
    for step in (10, 1_000_000):
        settings = pretraining(runs / "prepare", budget={"max_steps": step + 2}, validate_every=step)
        assert work.run("pretrain", str(step), settings, stop=(0, 1)) == 75
        pass_off(work / str(step) / "checkpoints", step)
        read.clear()
        _shuffled_items.cache_clear()
        assert work.run("pretrain", str(step), settings, *GO_ON) == 0
        assert work.trained[-2:] == [(0, step), (0, step + 1)]
        found[step] = dict(read)
    assert found[10] == found[1_000_000] == {"batches": 4, "permutations": 1}, "two of training, two of validation"


def pass_off(folder: Path, step: int) -> None:
    """Leave nothing but the newest checkpoint, as one of another step."""
    content = torch.load(max(folder.iterdir()) / "training.ckpt", weights_only=True)
    progress = content["loops"]["fit_loop"]["epoch_loop.automatic_optimization.optim_progress"]
    progress["optimizer"]["step"]["total"] |= {"ready": step, "completed": step}
    shutil.rmtree(folder)
    write_checkpoint(folder, step, 0, lambda path: torch.save(content, path))
