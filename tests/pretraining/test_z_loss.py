"""The z-loss of every softmax over the vocabulary."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.heads import EncoderWithHead
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.pretraining.losses import squared_normaliser
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objective import InitialModels, ValidationText
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.trainer import build_trainer
from tests.ready_made import ReadyBatches, ReadyPretraining
from tests.refusals import refused
from tests.tiny_training import Losses, cpu_training
from tests.toy_corpus import corpus_readers

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = BertConfig(32, 2, 2, 48, max_position_embeddings=32, initializer_range=0.1, **QUIET)
LENGTH, BATCH = 24, 8
WHOLE = Share()
Made = tuple[PackedRowsReader, PackedRowsReader, dict[str, EncoderWithHead]]
GOLDEN: dict[str, Any] = {
    "train": [5.660586, 5.598105, 5.503249, 5.620315, 5.424341, 5.119317, 5.252439, 5.151935, 5.109314, 5.127994],
    "validation": 3.949922,
}


@pytest.fixture
def made(toy_corpus: Any, toy_tokenizer: Any) -> Callable[..., Made]:
    """Rows of training and validation, and the models, for settings; the same for every call."""

    def make(settings: ObjectiveConfig) -> Made:
        objective = settings.build(toy_tokenizer)
        train, validation = corpus_readers(toy_corpus, objective, LENGTH)
        torch.manual_seed(0)
        built = objective.build(InitialModels(toy_tokenizer, BERT, None))
        return train, validation, {name: one.model for name, one in built.items()}

    return make


def batch_of(reader: PackedRowsReader, step: int, share: Share = WHOLE, micro_batch: int = 0) -> dict[str, Any]:
    """A micro-batch of a step, as a loader hands it on."""
    rows = TrainRows(reader, GlobalOrder(reader.plan.num_rows, BATCH, seed=0), share, range(step, 1000))
    batch = rows[micro_batch]
    return {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def stepping(
    reader: PackedRowsReader, models: Any, monkeypatch: pytest.MonkeyPatch, world_size: int = 1, accumulation: int = 1
) -> Pretraining:
    module = ReadyPretraining(reader.objective, models, OptimConfig(), ScheduleConfig(), [ValidationText("", 1.0, {})])
    module.trainer = SimpleNamespace(world_size=world_size, accumulate_grad_batches=accumulation)
    monkeypatch.setattr(Pretraining, "log", lambda *_, **__: None)
    return module


def trained(
    reader: PackedRowsReader, validation: PackedRowsReader, models: Any, out: Path, num_steps: int
) -> tuple[list[float], float]:
    """The losses of all steps, and the last validation's."""
    how = OptimConfig(lr=1e-2), ScheduleConfig(warmup_steps=2), [ValidationText("", 0.5, {})]
    module = ReadyPretraining(reader.objective, models, *how)
    losses = Losses()
    trainer = build_trainer(cpu_training(), out, num_steps, BATCH, num_steps, [losses])
    order = GlobalOrder(reader.plan.num_rows, BATCH, seed=0)
    train = lambda share, steps: TrainRows(reader, order, share, steps)  # noqa: E731
    held_out = lambda share: ValidationRows(validation, BATCH, share)  # noqa: E731
    trainer.fit(module, datamodule=ReadyBatches(train, [held_out], num_steps))
    return losses.values, float(trainer.callback_metrics["validation/loss"])


def test_z_loss_is_the_squared_logarithm_of_the_normaliser() -> None:
    """And its gradient is 2 log Z times the probabilities."""
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    targets = torch.tensor([3, IGNORE_INDEX, 0, 6, IGNORE_INDEX])
    found = squared_normaliser(logits, targets)
    sums = np.exp(logits.detach().numpy()).sum(axis=1)
    used = (targets != IGNORE_INDEX).numpy()
    assert found.item() == pytest.approx(float((np.log(sums) ** 2)[used].sum()), rel=1e-6)
    found.backward()
    wanted = 2 * np.log(sums)[:, None] * np.exp(logits.detach().numpy()) / sums[:, None] * used[:, None]
    np.testing.assert_allclose(logits.grad.numpy(), wanted, atol=1e-6)
    half = torch.full((1, 512), 8.0, dtype=torch.bfloat16)  # in 16 bits the sum would be off by a percent
    assert float(squared_normaliser(half, targets[:1])) == pytest.approx((8 + math.log(512)) ** 2, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "name", "model"),
    [(MaskedLM(), "masked_lm", "model"), (ReplacedTokens(), "generator", "generator")],
    ids=["masked", "replaced"],
)
def test_every_softmax_has_a_z_loss(
    made: Any, monkeypatch: pytest.MonkeyPatch, settings: Any, name: str, model: str
) -> None:
    """In the loss by its factor, named apart; neither in the other losses nor in validation."""
    with_it = dataclasses.replace(settings, z_loss=0.01)
    (plain, _, models), (reader, _, _) = made(settings), made(with_it)
    batch = batch_of(plain, 0)
    one, other = plain.objective.losses(models, batch), reader.objective.losses(models, batch)
    assert other.keys() - one.keys() == {"z_loss"} and all(torch.equal(one[key], other[key]) for key in one)
    logits = []
    models[model].register_forward_hook(lambda module, inputs, output: logits.append(output))
    plain.objective.losses(models, batch)
    used = batch["targets"] != IGNORE_INDEX
    wanted = logits[0].double().exp().sum(dim=-1).log().square()[used].sum()
    assert other["z_loss"].item() == pytest.approx(wanted.item(), rel=1e-5)

    totals, parts = [], []
    for one_reader in (plain, reader):
        module = stepping(one_reader, models, monkeypatch)
        totals.append(float(module.training_step(batch, 0)))
        parts.append(module.step_loss.share_terms)
    mean = wanted.item() / int(used.sum())
    assert totals[1] - totals[0] == pytest.approx(0.01 * mean, rel=1e-3)
    assert float(parts[1][0]["z_loss"]) == pytest.approx(mean, rel=1e-5)
    assert not any("z_loss" in part for part in parts[0])
    measured = [one_reader.objective.measure(models, batch) for one_reader in (plain, reader)]
    assert all(torch.equal(measured[0][key], measured[1][key]) for key in plain.objective.measured)
    assert set(reader.objective.measured) == set(plain.objective.measured)


def test_z_loss_is_told_with_its_range() -> None:
    for settings in (MaskedLM, ReplacedTokens):
        with refused(where="z_loss", found="-0.1"):
            settings(z_loss=-0.1)


def test_golden_loss_curves(made: Any, tmp_path: Path) -> None:
    """Ten steps in fp32 on one thread, without dropout; what moves them is another mask, order, step or target."""
    losses, validated = trained(*made(MaskedLM(z_loss=0.1)), tmp_path, num_steps=10)
    assert losses == pytest.approx(GOLDEN["train"], rel=1e-4)
    assert validated == pytest.approx(GOLDEN["validation"], rel=1e-4)
