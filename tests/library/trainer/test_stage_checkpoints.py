"""A checkpoint of a stage continues in a Lightning Trainer, and the reverse, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint

from domainbert.stages.finetune import finetune
from domainbert.stages.pretrain import pretrain
from domainbert.tasks.finetuning import FineTuning
from domainbert.training.checkpoint_files import FOLDER, newest_checkpoint
from domainbert.training.checkpoints import Checkpoints
from domainbert.training.config import Budget, OptimConfig
from domainbert.training.length_phases import LengthPhase
from domainbert.training.module import TrainedModule
from tests.library.trainer.test_as_stages import LABELLED, PLAIN
from tests.library.trainer.tiny_library import BERT, files, trainer

pytestmark = pytest.mark.usefixtures("one_thread")
PHASES = (LengthPhase(16, until=0.5), LengthPhase(48))


class Killed(Exception):
    """Ends a training."""


@contextmanager
def killed(step: int) -> Iterator[None]:
    """End the training inside when it begins a step (from 0); its newest checkpoint is of this step."""
    begin = TrainedModule.on_train_batch_start

    def begin_or_end(module: TrainedModule, batch: dict, batch_idx: int) -> None:
        if batch["step"] == step:
            raise Killed
        begin(module, batch, batch_idx)

    with patch.object(TrainedModule, "on_train_batch_start", begin_or_end), pytest.raises(Killed):
        yield


def checkpoint_of(out: Path, step: int) -> Path:
    newest = newest_checkpoint(out / FOLDER, print)
    assert newest is not None and newest.step == step
    return newest.file


@pytest.mark.parametrize(
    ("lengths", "steps"), [(32, (2, 4)), (PHASES, (3, 6))], ids=["within an epoch", "in phases, after validations"]
)
def test_a_pretraining_moves_between_stage_and_trainer(tiny, tmp_path, lengths, steps):
    optim = OptimConfig(lr=5e-3, eps=1e-3)
    how = {"prepared": [tiny / "prepared"], "encoder": BERT, "batch_size": 16, "optim": optim, "dropout": 0.1}
    how |= {"budget": Budget(max_steps=8), "max_length": lengths, "validate_every": 3, "checkpoint_every": 1, **PLAIN}
    pretrain(out=tmp_path / "whole", **how)
    out, (first, second) = tmp_path / "out", steps
    with killed(first):
        pretrain(out=out, **how)
    for name, ends in (("library", None), ("out", second)):
        module = tiny.pretraining(dropout=0.1)
        run = trainer(callbacks=[Checkpoints(tmp_path / name, every=1)], max_steps=8, enable_checkpointing=True)
        if ends is None:
            run.fit(module, tiny.rows(max_length=lengths), ckpt_path=checkpoint_of(out, first), weights_only=True)
            module.save_pretrained(tmp_path / "library")
        else:
            with killed(ends):
                run.fit(module, tiny.rows(max_length=lengths), ckpt_path=checkpoint_of(out, first), weights_only=True)
    assert checkpoint_of(out, second)
    pretrain(out=out, **how)
    assert files(tmp_path / "library") == files(tmp_path / "whole") == files(out)


@pytest.mark.parametrize(("accumulate", "steps"), [(2, (3, 5)), (1, (5, 8))])
def test_a_fine_tuning_moves_between_stage_and_trainer(tiny, tmp_path, accumulate, steps):
    """Within an epoch of 5 steps, and after its validation."""
    how = {
        "model": tiny / "model",
        **LABELLED,
        "max_epochs": 3,
        "dropout": 0.2,
        "checkpoint_every": 1,
        "select_by": "loss",
    }
    how |= {"micro_batch_size": 8 // accumulate}
    finetune(out=tmp_path / "whole", **how)
    out, (first, second) = tmp_path / "out", steps
    with killed(first):
        finetune(out=out, **how)
    start = checkpoint_of(out / "seed-1", first)

    best = ModelCheckpoint(tmp_path / "best", monitor="validation/loss")
    how_long = {"max_epochs": 3, "accumulate_grad_batches": accumulate}
    run = trainer(callbacks=[best], enable_checkpointing=True, **how_long)
    run.fit(tiny.module(dropout=0.2), tiny.data(), ckpt_path=start, weights_only=True)
    FineTuning.load_from_checkpoint(best.best_model_path).save_pretrained(tmp_path / "library")
    run = trainer(callbacks=[Checkpoints(out / "seed-1", every=1)], enable_checkpointing=True, **how_long)
    with killed(second):
        run.fit(tiny.module(dropout=0.2), tiny.data(), ckpt_path=start, weights_only=True)
    assert checkpoint_of(out / "seed-1", second)
    finetune(out=out, **how)
    assert files(tmp_path / "library") == files(tmp_path / "whole/seed-1") == files(out / "seed-1")
