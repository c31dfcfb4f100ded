"""A tiny model, a corpus in memory and a Trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning
import numpy as np
import pytest
import torch

from domainbert.data.batches import GlobalOrder
from domainbert.data.splits import PreparedSplit
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objective import ValidationText
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.config import MicroBatchSize, OptimConfig, ScheduleConfig, Training
from domainbert.training.trainer import build_trainer
from tests.ready_made import ReadyBatches, ReadyPretraining

NUM_STEPS, BATCH_SIZE = 10, 8
CONFIG = BertConfig(
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=32,
    initializer_range=0.1,
)


@pytest.fixture(autouse=True)
def on_one_thread(one_thread: None) -> None:
    """Every test here."""


@pytest.fixture(scope="session")
def tokenizer() -> DomainTokenizer:
    """Letters, `men's` in three pieces, and `##s`."""
    pieces = ["men", "'", "s", "rate", "bank", "##s", *"abcdefgh"]
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *pieces])}
    return DomainTokenizer(bert_backend(vocab, {}))


@pytest.fixture
def make_model(tokenizer: DomainTokenizer) -> Callable[..., EncoderWithHead]:
    """The same tiny model for every call."""

    def make(head: str, num_labels: int = 0) -> EncoderWithHead:
        torch.manual_seed(0)
        return build_model(CONFIG, VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id), head, num_labels)

    return make


@pytest.fixture
def reader(tokenizer: DomainTokenizer) -> PackedRowsReader:
    """Rows of documents in which each token mostly decides the next, so that there is something to learn."""
    generator = np.random.default_rng(0)
    sizes = generator.integers(5, 40, 60)
    steps = np.where(generator.random(sizes.sum()) < 0.9, 1, 3)
    ids = (5 + np.cumsum(steps) % (tokenizer.vocab_size - 5)).astype(np.uint16)
    ids[::17] = tokenizer.unk_id
    begins = tokenizer.pieces.begins_word
    objective = MaskedLM().build(tokenizer)
    return PackedRowsReader(SplitInMemory(sizes, ids, begins[ids]), objective, 24)


class SplitInMemory(PreparedSplit):
    """Documents of some sizes, with their ids and where words begin, which never were on a disk."""

    def __init__(self, sizes, ids, starts) -> None:
        self.lengths, self.ids, self.starts = sizes, ids, starts
        self.sampling = self.languages = None

    def take(self, start: int, stop: int) -> np.ndarray:
        """See `PreparedSplit`."""
        return self.ids[start:stop]

    def take_starts(self, start: int, stop: int) -> np.ndarray:
        """See `PreparedSplit`."""
        return self.starts[start:stop]


def cpu_training(micro_batch_size: MicroBatchSize = None) -> Training:
    """The settings of a training on one CPU, in full precision and without loggers."""
    trainer = {"accelerator": "cpu", "devices": 1}
    return Training(precision="32-true", micro_batch_size=micro_batch_size, loggers=(), trainer=trainer)


def masked_lm_module(
    reader: PackedRowsReader,
    model: EncoderWithHead,
    optim: OptimConfig = OptimConfig(),
    schedule: ScheduleConfig = ScheduleConfig(),
    texts: Sequence[ValidationText] = (ValidationText("", 1.0, {"unigram_entropy": 1.0}),),
    seed: int = 0,
) -> Pretraining:
    """Masked LM of one model, which validates the corpus' own text."""
    return ReadyPretraining(reader.objective, {"model": model}, optim, schedule, texts, seed)


def logs_each_step() -> dict[str, Any]:
    """Attributes of a Trainer by which every step is logged."""
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(_batches_that_stepped=0))
    quiet = {"precision_plugin": SimpleNamespace(), "progress_bar_callback": None}
    return {"fit_loop": loop, "log_every_n_steps": 1, "estimated_stepping_batches": 10, **quiet}


class Losses(lightning.Callback):
    """The loss of every optimiser step, over its whole batch."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer, module, *_) -> None:
        """Note it."""
        if trainer.global_step > len(self.values):
            self.values.append(float(module.step_loss.total))


@pytest.fixture
def pretrain(reader: PackedRowsReader, make_model, tmp_path: Path) -> Callable[..., tuple[Pretraining, list[float]]]:
    """Trains the tiny model for some steps: gives the module and the losses."""

    def train(
        optim: OptimConfig = OptimConfig(lr=5e-2),
        num_steps: int = NUM_STEPS,
        micro_batch_size: int | None = None,
    ) -> tuple[Pretraining, list[float]]:
        schedule = ScheduleConfig(warmup_steps=2)
        texts = [ValidationText("", 0.5, {"unigram_entropy": 2.5})]
        module = masked_lm_module(reader, make_model("masked_lm"), optim, schedule, texts)
        losses = Losses()
        trainer = build_trainer(cpu_training(micro_batch_size), tmp_path, num_steps, BATCH_SIZE, num_steps, [losses])
        order = GlobalOrder(reader.plan.num_rows, BATCH_SIZE, seed=0)
        data = ReadyBatches(
            lambda share, steps: TrainRows(reader, order, share, steps),
            [lambda share: ValidationRows(reader, BATCH_SIZE, share)],
            num_steps,
        )
        trainer.fit(module, datamodule=data)
        module.final_metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        return module, losses.values

    return train
