from __future__ import annotations

import pytest

from domainbert.training import trainer as module
from domainbert.training.config import Training
from domainbert.training.trainer import build_trainer
from tests.refusals import refused


def build(tmp_path, micro_batch_size=None, batch_size=32, loggers=(), **arguments):
    training = Training(
        precision="32-true",
        micro_batch_size=micro_batch_size,
        loggers=loggers,
        trainer={"accelerator": "cpu", "devices": 1, **arguments},
    )
    return build_trainer(training, tmp_path, 100, batch_size, 10, [])


@pytest.mark.parametrize(("micro_batch_size", "accumulation"), [(None, 1), (32, 1), (8, 4), (1, 32)])
def test_micro_batches_make_up_the_batch_and_validation_counts_optimiser_steps(
    tmp_path, micro_batch_size, accumulation
):
    trainer = build(tmp_path, micro_batch_size)
    assert trainer.accumulate_grad_batches == accumulation
    assert trainer.val_check_interval == 10 * accumulation
    assert trainer.max_steps == 100 and trainer.loggers == []


@pytest.mark.parametrize(
    ("batch_size", "micro_batch_size", "world_size", "wanted"), [(32, None, 4, 1), (32, 2, 4, 4), (32, 8, 4, 1)]
)
def test_the_batch_is_divided_over_devices(batch_size, micro_batch_size, world_size, wanted):
    assert module._accumulation(batch_size, micro_batch_size, world_size) == wanted


@pytest.mark.parametrize(
    ("batch_size", "micro_batch_size", "world_size"),
    [(32, 5, 1), (32, 64, 1), (30, None, 4), (2, None, 4), (32, 16, 4)],
)
def test_a_batch_that_does_not_divide(batch_size, micro_batch_size, world_size):
    expected = f"a multiple of ..., the number of devices ({world_size})..."
    with refused(where="batch_size", found=batch_size, expected=expected):
        module._accumulation(batch_size, micro_batch_size, world_size)


def test_loggers_write_below_the_folder_and_a_missing_one_is_told(tmp_path, monkeypatch):
    trainer = build(tmp_path, loggers=("jsonl", "tensorboard"))
    assert trainer.loggers[0].path == tmp_path / "logs/metrics.jsonl"
    assert trainer.loggers[1].log_dir == str(tmp_path / "logs/tensorboard")

    def missing(*_, **__):
        raise ModuleNotFoundError("wandb")

    monkeypatch.setattr(module, "WandbLogger", missing)
    with refused(where="loggers", problem="needs wandb", hint="run pip install 'domainbert[wandb]'"):
        build(tmp_path, loggers=("wandb",))
