"""Masked LM mixed with causal LM: which steps, which targets, whose gradient; and the z-loss of every softmax."""

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
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.data.order import GlobalOrder
from domainbert.data.types import IGNORED, Share
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows, rows_of_corpus
from domainbert.pretraining.config import MaskingConfig, ObjectiveConfig
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objective import ValidationText
from domainbert.pretraining.objectives.causal_mix.config import CausalMix
from domainbert.pretraining.objectives.causal_mix.objective import next_tokens
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens
from domainbert.pretraining.softmax import squared_normaliser
from domainbert.pretraining.start import Start
from domainbert.training.config import Runtime
from domainbert.training.data_module import TrainAndValidation
from domainbert.training.optim_config import OptimConfig, ScheduleConfig
from domainbert.training.throughput import flops_per_token
from domainbert.training.trainer import build_trainer
from tests.tiny_training import Losses

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = BertConfig(32, 2, 2, 48, max_position_embeddings=32, initializer_range=0.1, **QUIET)
LENGTH, BATCH = 24, 8
WHOLE = Share()
THIRD = CausalMix(causal_share=0.3)
Made = tuple[PackedRowsReader, PackedRowsReader, dict[str, EncoderWithHead]]
GOLDEN: dict[str, Any] = {
    "causal_mix": {
        "train": [4.044949, 3.918811, 3.792257, 4.055581, 4.009826, 3.725395, 3.966522, 3.954437, 3.892459, 3.894508],
        "validation": 4.022836,
    },
    "z_loss": {
        "train": [5.660586, 5.598105, 5.503249, 5.620315, 5.424341, 5.119317, 5.252439, 5.151935, 5.109314, 5.127994],
        "validation": 3.949922,
    },
}


@pytest.fixture
def made(toy_corpus: Any, toy_tokenizer: Any) -> Callable[..., Made]:
    """Rows of training and validation, and the models, for settings; the same for every call."""

    def make(settings: ObjectiveConfig) -> Made:
        objective = settings.build(toy_tokenizer)
        train, validation = rows_of_corpus(toy_corpus, objective, LENGTH)
        torch.manual_seed(0)
        built = objective.build(Start(toy_tokenizer, BERT, None))
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
    module = Pretraining(reader.objective, models, OptimConfig(), ScheduleConfig(), 10, [ValidationText("", 1.0, {})])
    module.trainer = SimpleNamespace(world_size=world_size, accumulate_grad_batches=accumulation)
    monkeypatch.setattr(Pretraining, "log", lambda *_, **__: None)
    return module


def trained(
    reader: PackedRowsReader, validation: PackedRowsReader, models: Any, out: Path, num_steps: int
) -> tuple[list[float], float]:
    """The losses of all steps, and the last validation's."""
    how = OptimConfig(lr=1e-2), ScheduleConfig(warmup_steps=2), num_steps, [ValidationText("", 0.5, {})]
    module = Pretraining(reader.objective, models, *how)
    losses = Losses()
    runtime = Runtime(out, "32-true", None, 0, [], {"accelerator": "cpu", "devices": 1})
    trainer = build_trainer(runtime, num_steps, BATCH, num_steps, [losses])
    order = GlobalOrder(reader.plan.num_rows, BATCH, seed=0)
    train = lambda share, steps: TrainRows(reader, order, share, steps)  # noqa: E731
    held_out = lambda share: ValidationRows(validation, BATCH, share)  # noqa: E731
    trainer.fit(module, datamodule=TrainAndValidation(train, [held_out], num_steps, num_workers=0))
    return losses.values, float(trainer.callback_metrics["validation/loss"])


# steps and targets


@pytest.mark.parametrize("share", [0.0625, 0.3, 0.07, 1 / 3, 0.999, 1e-9])
def test_exactly_so_many_steps_are_causal_and_evenly_spread(made: Any, share: float) -> None:
    """Of any first n steps it is the share of them, rounded up."""
    objective = made(CausalMix(causal_share=share))[0].objective
    causal = np.array([objective.is_causal(step) for step in range(2000)])
    made_so_far = np.cumsum(causal)
    for number in (1, 2, 10, 16, 17, 100, 160, 1000, 2000):
        exact = share * number
        wanted = round(exact) if math.isclose(exact, round(exact), abs_tol=1e-6) and exact > 0.5 else math.ceil(exact)
        assert made_so_far[number - 1] == wanted, number
    assert causal[0], "what needs most memory comes first"
    gaps = np.diff(np.flatnonzero(causal))
    assert gaps.max(initial=0) - gaps.min(initial=10_000) <= 1
    assert objective.is_causal(10**15) in (True, False), "at once, however late"


def test_a_causal_step_needs_the_most_memory(made: Any) -> None:
    """It is the one that `micro_batch_size: auto` tries in each phase, where there is one."""
    objective = made(CausalMix(MaskingConfig(0.1, final_mlm_probability=0.5), causal_share=0.25))[0].objective
    assert [step for step in range(12) if objective.is_causal(step)] == [0, 4, 8]
    assert [objective.heaviest_step(range(*one)) for one in ((0, 9), (1, 9), (5, 8))] == [0, 4, 7]


def test_a_causal_step_asks_for_the_next_token_of_each_text(made: Any, toy_tokenizer: Any) -> None:
    """By hand, token by token; as many as the counts say, in any division of the batch."""
    reader = made(THIRD)[0]
    batch, special = batch_of(reader, 0), toy_tokenizer.special_ids
    ids, segments = batch["input_ids"].tolist(), batch["segment_ids"].tolist()
    wanted = []
    for row, texts in zip(ids, segments, strict=True):
        for place in range(LENGTH):
            same = place + 1 < LENGTH and texts[place + 1] == texts[place] != 0
            known = same and row[place + 1] not in special
            wanted.append(row[place + 1] if known else IGNORED)
    assert batch["targets"].tolist() == wanted and batch["causal"] is True
    assert batch["positions"].tolist() == list(range(BATCH * LENGTH))
    assert any(0 in texts for texts in segments) and max(map(max, segments)) > 1, "padding, and several texts in a row"
    assert toy_tokenizer.mask_id not in batch["input_ids"], "nothing is hidden"
    used = int((batch["targets"] != IGNORED).sum())
    assert batch["num_targets"] == used
    parts = [batch_of(reader, 0, Share(rank, 2, 2), number) for rank in range(2) for number in range(2)]
    assert sum(int((part["targets"] != IGNORED).sum()) for part in parts) == used
    assert {part["num_targets"] for part in parts} == {used}


def test_the_other_steps_are_those_of_masked_lm(made: Any) -> None:
    masking = MaskingConfig(0.3, whole_word=True)
    reader, alone = made(dataclasses.replace(THIRD, masking=masking))[0], made(MaskedLM(masking))[0]
    for step in range(8):
        batch, wanted = batch_of(reader, step), batch_of(alone, step)
        assert torch.equal(batch["segment_ids"], wanted["segment_ids"])
        if reader.objective.is_causal(step):
            assert not torch.equal(batch["input_ids"], wanted["input_ids"])
            continue
        assert batch.keys() == wanted.keys() and batch["num_targets"] == wanted["num_targets"]
        assert all(torch.equal(batch[name], wanted[name]) for name in ("input_ids", "positions", "targets"))


def test_validation_is_masked_lm_alone(made: Any) -> None:
    odd = CausalMix(MaskingConfig(0.4), z_loss=0.5, causal_share=0.9)
    validation, wanted = (ValidationRows(made(one)[1], 4, Share()) for one in (odd, MaskedLM()))
    for one, other in zip(validation, wanted, strict=True):
        assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_next_tokens_of_rows() -> None:
    ids = np.array([[1, 7, 8, 2, 1, 9, 2, 0], [1, 5, 4, 6, 2, 1, 9, 9]])
    texts = np.array([[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 2, 2, 2]])
    none = IGNORED
    assert next_tokens(ids, texts, frozenset({0, 1, 2, 3, 4})).tolist() == [
        [7, 8, none, none, 9, none, none, none],
        [5, none, 6, none, none, 9, 9, none],
    ]


def test_a_place_has_no_target_in_another_text_even_where_that_begins_with_an_ordinary_token() -> None:
    found = next_tokens(np.array([[5, 6, 7, 8]]), np.array([[1, 1, 2, 2]]), frozenset())
    assert found.tolist() == [[6, IGNORED, 8, IGNORED]]


# losses


def test_a_causal_loss_is_that_of_each_prefix(made: Any) -> None:
    """The model reads a text up to a token, and nothing else, and is asked for the next one; in every row."""
    reader, _, models = made(THIRD)
    model, batch = models["model"].eval(), batch_of(reader, 0)
    wanted = 0.0
    with torch.inference_mode():
        for row, texts in zip(batch["input_ids"], batch["segment_ids"], strict=True):
            for number in range(1, int(texts.max()) + 1):
                text = row[texts == number]
                for end in range(1, len(text)):
                    if int(text[end]) in reader.objective.masker.special_ids:
                        continue
                    ids = text[None, :end]
                    prefix = Packed(ids, torch.arange(end)[None], torch.ones_like(ids), causal=True)
                    logits = model(prefix, torch.tensor([end - 1]))[0]
                    wanted -= float(logits.log_softmax(dim=-1)[text[end]])
        found = reader.objective.losses(models, batch)
    assert {name: float(value) for name, value in found.items()} == pytest.approx({"causal_lm": wanted}, rel=1e-5)


def test_each_step_has_the_mean_of_its_own_targets_however_it_is_divided(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(THIRD, z_loss=0.1)

    def gradients(step: int, world_size: int, accumulation: int) -> list[Tensor]:
        reader, _, models = made(settings)
        module = stepping(reader, models, monkeypatch, world_size, accumulation)
        for rank in range(world_size):
            for number in range(accumulation):
                batch = batch_of(reader, step, Share(rank, world_size, accumulation), number)
                (module.training_step(batch, number) / accumulation / world_size).backward()
        return [parameter.grad for parameter in module.parameters()]

    for step, name in ((0, "causal_lm"), (1, "masked_lm")):
        reader, _, models = made(settings)
        batch = batch_of(reader, step)
        sums = reader.objective.losses(models, batch)
        assert sums.keys() == {name, "z_loss"}
        count = int((batch["targets"] != IGNORED).sum())
        ((sums[name] + 0.1 * sums["z_loss"]) / count).backward()
        for layout in ((1, 1), (1, 4), (2, 1), (4, 2)):
            for one, parameter in zip(gradients(step, *layout), models["model"].parameters(), strict=True):
                torch.testing.assert_close(one, parameter.grad, atol=2e-6, rtol=1e-4)


def test_the_arithmetic_is_the_mean_over_the_steps(made: Any) -> None:
    reader, _, models = made(CausalMix(causal_share=0.25))
    masked, causal = (flops_per_token(models["model"], LENGTH, share) for share in (0.15, 1.0))
    assert reader.objective.flops_per_token(models, LENGTH) == pytest.approx(0.75 * masked + 0.25 * causal)


def test_an_encoder_that_sees_ahead_is_refused(toy_tokenizer: Any) -> None:
    relative = {"relative_attention": True, "pos_att_type": "c2p|p2c", "position_buckets": 8}
    convolved = DebertaV2Config(32, 2, 2, 48, max_position_embeddings=32, conv_kernel_size=3, **relative)
    with pytest.raises(DomainbertError, match=r"convolution .* reads the tokens behind one, too; expected an encoder"):
        THIRD.build(toy_tokenizer).build(Start(toy_tokenizer, convolved, None))


# z-loss


def test_z_loss_is_the_squared_logarithm_of_the_normaliser() -> None:
    """And its gradient is 2 log Z times the probabilities."""
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    targets = torch.tensor([3, IGNORED, 0, 6, IGNORED])
    found = squared_normaliser(logits, targets)
    sums = np.exp(logits.detach().numpy()).sum(axis=1)
    used = (targets != IGNORED).numpy()
    assert found.item() == pytest.approx(float((np.log(sums) ** 2)[used].sum()), rel=1e-6)
    found.backward()
    wanted = 2 * np.log(sums)[:, None] * np.exp(logits.detach().numpy()) / sums[:, None] * used[:, None]
    np.testing.assert_allclose(logits.grad.numpy(), wanted, atol=1e-6)
    half = torch.full((1, 512), 8.0, dtype=torch.bfloat16)  # in 16 bits the sum would be off by a percent
    assert float(squared_normaliser(half, targets[:1])) == pytest.approx((8 + math.log(512)) ** 2, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "name", "model"),
    [(MaskedLM(), "masked_lm", "model"), (THIRD, "causal_lm", "model"), (ReplacedTokens(), "generator", "generator")],
    ids=["masked", "causal", "replaced"],
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
    used = batch["targets"] != IGNORED
    wanted = logits[0].double().exp().sum(dim=-1).log().square()[used].sum()
    assert other["z_loss"].item() == pytest.approx(wanted.item(), rel=1e-5)

    totals, parts = [], []
    for one_reader in (plain, reader):
        module = stepping(one_reader, models, monkeypatch)
        totals.append(float(module.training_step(batch, 0)))
        parts.append(module._parts)
    mean = wanted.item() / int(used.sum())
    assert totals[1] - totals[0] == pytest.approx(0.01 * mean, rel=1e-3)
    assert float(parts[1][0]["z_loss"]) == pytest.approx(mean, rel=1e-5)
    assert not any("z_loss" in part for part in parts[0])
    measured = [one_reader.objective.measure(models, batch) for one_reader in (plain, reader)]
    assert all(torch.equal(measured[0][key], measured[1][key]) for key in plain.objective.measured)
    assert set(reader.objective.measured) == set(plain.objective.measured)


def test_z_loss_is_told_with_its_range() -> None:
    for settings in (MaskedLM, CausalMix, ReplacedTokens):
        with pytest.raises(DomainbertError, match=r"z_loss: found -0\.1; expected a number from 0 to 1"):
            settings(z_loss=-0.1)


# trainings


def test_both_kinds_are_learnt_where_each_token_mostly_decides_the_next(
    reader: PackedRowsReader, tokenizer: Any, make_model: Any, tmp_path: Path
) -> None:
    """One entry follows in nine cases of ten, and one in the tenth: 0.33 nats, but for what begins a text. Hidden ones,
    of which a step has a seventh as many, are learnt more slowly."""
    rows = PackedRowsReader(reader.split, CausalMix(causal_share=0.5).build(tokenizer), LENGTH)
    losses = trained(rows, rows, {"model": make_model("masked_lm")}, tmp_path, num_steps=200)[0]
    causal, masked = (np.array(losses[first::2]) for first in (0, 1))
    assert causal[-10:].mean() < 1.0 < causal[0] - 1.5 and masked[-10:].mean() < masked[:10].mean() - 0.2


@pytest.mark.parametrize(("key", "settings"), [("causal_mix", THIRD), ("z_loss", MaskedLM(z_loss=0.1))])
def test_golden_loss_curves(made: Any, tmp_path: Path, key: str, settings: Any) -> None:
    """Ten steps in fp32 on one thread, without dropout; what moves them is another mask, order, step or target."""
    losses, validated = trained(*made(settings), tmp_path, num_steps=10)
    assert losses == pytest.approx(GOLDEN[key]["train"], rel=1e-4)
    assert validated == pytest.approx(GOLDEN[key]["validation"], rel=1e-4)


@pytest.mark.slow  # a minute to compile
def test_compiled_losses_are_the_same(made: Any) -> None:
    """Both kinds of step, in turn: each is compiled once."""
    reader, _, models = made(dataclasses.replace(THIRD, z_loss=0.01))
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(reader.objective.losses, dynamic=False)
    inputs = reader.objective.inputs
    for step in range(5):
        batch = {name: value for name, value in batch_of(reader, step).items() if name in inputs}
        wanted, found = reader.objective.losses(models, batch), compiled(models, batch)
        assert {name: float(value) for name, value in found.items()} == pytest.approx(
            {name: float(value) for name, value in wanted.items()}, rel=1e-4
        )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
