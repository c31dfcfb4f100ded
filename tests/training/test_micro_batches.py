from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import Dataset

from domainbert.data.batches import Share
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.packed import Packed
from domainbert.training import micro_batches
from domainbert.training.checkpoints import Checkpoints
from domainbert.training.config import MicroBatchSize, OptimConfig, ScheduleConfig, Training
from domainbert.training.data_module import share_of
from domainbert.training.micro_batches import divisors_descending
from domainbert.training.module import TrainedModule
from domainbert.training.trainer import build_trainer
from tests.ready_made import ReadyBatches, no_tokenizer
from tests.refusals import refused

ROWS, LENGTH, STEPS = 12, 16, 3


class Rows(Dataset[dict[str, Any]]):
    """Rows of one text whose ids are functions of step and row."""

    def __init__(self, share: Share, steps: range) -> None:
        self.share, self.steps = share, steps

    def __len__(self) -> int:
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> dict[str, Any]:
        step, micro_batch = self.steps[index // self.share.accumulation], index % self.share.accumulation
        rows = self.share.select(np.arange(ROWS), micro_batch)
        ids = (7 * rows[:, None] + np.arange(LENGTH) * (step + 2)) % 32
        places = np.broadcast_to(np.arange(LENGTH), ids.shape).copy()
        batch = {"input_ids": ids, "position_ids": places, "segment_ids": np.ones_like(ids)}
        nothing_read = np.zeros(0, dtype=np.int64)
        return batch | {"step": step, "micro_batch": micro_batch, "positions": nothing_read}


class Mean(TrainedModule):
    """The loss is the mean square of the last hidden states; notes the number of rows of each call."""

    sizes: list[int]
    tokenizer = no_tokenizer()

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        self.sizes.append(len(batch["input_ids"]))
        hidden = self.model.encoder(Packed.of(batch))
        return self.record_loss((hidden * torch.arange(8)).pow(2).mean(dim=(1, 2)).sum() / ROWS)


Trained = Callable[..., tuple[Mean, int]]


@pytest.fixture
def train(tmp_path: Path, one_thread: None) -> Trained:
    def fit(
        size: MicroBatchSize, dropout: float = 0.0, seed: int = 0, starts: Sequence[int] = (0,)
    ) -> tuple[Mean, int]:
        torch.manual_seed(0)
        config = BertConfig(8, 2, 2, 16, max_position_embeddings=LENGTH).with_dropout(dropout)
        model = build_model(config, VocabularyFacts(32, 0), "masked_lm")
        module = Mean(OptimConfig(lr=1e-2), ScheduleConfig(warmup_steps=1), seed)
        module.model, module.others = model, nn.ModuleDict()
        module.sizes = []
        arguments = {"accelerator": "cpu", "devices": 1}
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        out.mkdir()
        training = Training(precision="32-true", micro_batch_size=size, loggers=(), trainer=arguments)
        trainer = build_trainer(training, out, STEPS, ROWS, 100, [Checkpoints(out, every=2)])
        data = ReadyBatches(Rows, [], STEPS, batch_size=ROWS)
        data.heaviest = starts
        trainer.fit(module, datamodule=data)
        assert trainer.global_step == STEPS and trainer.val_check_interval == 100 * trainer.accumulate_grad_batches
        return module, share_of(trainer).micro_batch_size(ROWS)

    return fit


def weights_equal(one: Mean, other: Mean) -> bool:
    return all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())


@given(st.integers(1, 500))
def test_divisors_are_all_and_the_largest_first(number: int) -> None:
    found = divisors_descending(number)
    assert found == sorted({size for size in range(1, number + 1) if number % size == 0}, reverse=True)


def test_a_cpu_takes_the_whole_share(train: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    auto, size = train("auto", dropout=0.1)
    assert size == ROWS and auto.sizes == [ROWS] * STEPS
    assert "micro_batch_size: auto takes 12 of 12 rows at once" in capsys.readouterr().out
    assert weights_equal(auto, train(None, dropout=0.1)[0])


@pytest.mark.parametrize(("most", "wanted", "tried"), [(12, 12, [12]), (5, 4, [12, 6, 4]), (1, 1, [12, 6, 4, 3, 2, 1])])
def test_a_gpu_tries_from_the_whole_share_downwards(
    train: Trained, monkeypatch: pytest.MonkeyPatch, most: int, wanted: int, tried: list[int]
) -> None:
    on_a_gpu(monkeypatch, most)
    auto, size = train("auto", dropout=0.1)
    attempts = [count for one in tried for count in ([one] if one > most else [one, one])]  # the second with gradients
    assert size == wanted and auto.sizes == attempts + [wanted] * (ROWS // wanted * STEPS)
    monkeypatch.undo()
    assert weights_equal(auto, train(wanted, dropout=0.1)[0]), "trying left no trace"


def test_all_phases_are_tried_the_last_one_with_its_long_rows_first(
    train: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for 6 rows of step 2 and 4 rows of step 0."""
    tried: list[tuple[int, int]] = []
    real = micro_batches._trial_loss

    def loss(trainer: Any, module: Mean, step: int, num_micro_batches: int) -> Tensor:
        tried.append((ROWS // num_micro_batches, step))
        if tried[-1] in ((12, 2), (6, 0)):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(trainer, module, step, num_micro_batches)

    on_a_gpu(monkeypatch, ROWS)
    monkeypatch.setattr(micro_batches, "_trial_loss", loss)
    assert train("auto", starts=[0, 2])[1] == 4
    assert tried == [(12, 2), *[(6, 2)] * 2, (6, 0), *[(4, 2)] * 2, (4, 0)]


def test_a_gpu_without_room_for_a_row_is_told(train: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_gpu(monkeypatch, 0)
    with refused(found="...a single row does not fit in memory", expected="shorter rows..."):
        train("auto")


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The CPU has so little memory as to take `most` rows, and raises what a GPU raises."""
    real, real_tried = Mean.training_step, micro_batches._largest_fitting_size

    def step(self: Mean, batch: dict[str, Any], batch_idx: int) -> Tensor:
        loss = real(self, batch, batch_idx)
        if len(batch["input_ids"]) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss

    def tried(trainer: Any, module: Mean, share: int, steps: Sequence[int]) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "get_device_properties", lambda _: type("Device", (), {"total_memory": 1000}))
            patch.setattr(torch.cuda, "empty_cache", lambda: None)
            found = real_tried(trainer, module, share, steps)
        assert not module.step_loss.shares and all(parameter.grad is None for parameter in module.parameters())
        return found

    monkeypatch.setattr(Mean, "training_step", step)
    monkeypatch.setattr(micro_batches, "_largest_fitting_size", tried)
    monkeypatch.setattr(micro_batches, "_is_gpu", lambda trainer: True)


def test_the_processes_take_what_fits_all(train: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batches, "all_reduce_max", lambda parts: max(parts, 6))
    assert train("auto")[1] == 2


def test_sharded_devices_compute_together(tmp_path: Path) -> None:
    training = Training(micro_batch_size="auto", trainer={"accelerator": "cpu", "strategy": "fsdp"})
    with refused(where="micro_batch_size", found="auto with trainer.strategy: fsdp"):
        build_trainer(training, tmp_path, 10, ROWS, 10, [])
