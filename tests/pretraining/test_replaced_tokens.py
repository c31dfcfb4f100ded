"""Replaced-token detection against formulas, by hand, and against transformers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from domainbert.base.counter_random import random_bits, uniform
from domainbert.base.errors import DomainbertError
from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.electra.config import ElectraConfig
from domainbert.encoders.families import name_map
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.modernbert.config import ModernBertConfig
from domainbert.encoders.names import to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.models.static_embeddings import initialise_table
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows
from domainbert.pretraining.data_module import check_names
from domainbert.pretraining.losses import base_rate_warnings, entropy
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objective import InitialModels, Key, ValidationText
from domainbert.pretraining.objectives.replaced_tokens.config import GeneratorConfig, ReplacedTokens
from domainbert.pretraining.objectives.replaced_tokens.objective import (
    ReplacedTokensObjective,
    replace_tokens,
    sample_ids,
)
from domainbert.pretraining.objectives.replaced_tokens.sharing import DeltaEmbedding
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.throughput import flops_per_token
from domainbert.training.trainer import build_trainer
from tests.ready_made import ReadyBatches, ReadyPretraining
from tests.refusals import refused
from tests.tiny_training import Losses, cpu_training
from tests.toy_corpus import corpus_readers

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ELECTRA = ElectraConfig(32, 2, 4, 48, max_position_embeddings=32, embedding_size=16, initializer_range=0.1, **QUIET)
DEBERTA = DebertaV2Config(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=32,
    relative_attention=True,
    pos_att_type="c2p|p2c",
    position_buckets=8,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    position_biased_input=False,
    initializer_range=0.1,
    **QUIET,
)
BERT = BertConfig(32, 2, 2, 48, max_position_embeddings=32, initializer_range=0.1, **QUIET)
AS_ELECTRA = ReplacedTokens(GeneratorConfig(size=0.5), "es", mask_share=0.85)
AS_DEBERTA = ReplacedTokens()
LENGTH = 24
GOLDEN: dict[str, Any] = {
    "es": {
        "train": [43.72335, 37.02096, 30.52426, 26.22262, 24.21762, 23.12061, 21.80415, 21.10849, 22.59135, 23.08682],
        "validation": {"loss": 22.51817, "generator_loss": 3.83121, "discriminator_loss": 0.37374, "replaced": 0.1212},
    },
    "gdes": {
        "train": [41.11454, 34.20926, 24.10053, 25.00942, 23.66089, 23.25761, 21.95533, 21.86424, 22.34181, 22.67407],
        "validation": {"loss": 22.0696, "generator_loss": 3.81, "discriminator_loss": 0.36519, "replaced": 0.12042},
    },
}


@pytest.fixture
def made(toy_corpus: Any, toy_tokenizer: Any) -> Any:
    """The objective, its rows and its models, for settings and an encoder; the same for every call."""

    def make(settings: ReplacedTokens, encoder: EncoderConfig) -> tuple[PackedRowsReader, dict[str, EncoderWithHead]]:
        objective = settings.build(toy_tokenizer)
        train, _ = corpus_readers(toy_corpus, objective, LENGTH)
        torch.manual_seed(0)
        built = objective.build(InitialModels(toy_tokenizer, encoder, None))
        return train, {name: one.model for name, one in built.items()}

    return make


def tensors(batch: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


def batch_of(reader: PackedRowsReader, count: int = 8, seed: int = 3) -> dict[str, np.ndarray]:
    rows = np.arange(count)
    return reader.batch(Key(seed, 0, np.zeros_like(rows), rows))


# masks and samples


def test_masked_tokens_are_exact_and_most_of_them_hidden(made: Any, toy_tokenizer: Any) -> None:
    reader, _ = made(AS_ELECTRA, ELECTRA)
    count = reader.plan.num_rows
    batch = batch_of(reader, count)
    used = batch["targets"] != IGNORE_INDEX
    wanted = np.maximum(np.rint(0.15 * reader.plan.maskable_tokens), 1)
    assert used.reshape(count, -1).sum(axis=1).tolist() == wanted.tolist()
    places = batch["masked"][used]
    ids, seen = batch["input_ids"].ravel(), batch["masked_ids"].ravel()
    assert len(set(places.tolist())) == len(places), "without replacement"
    assert np.array_equal(ids[places], batch["targets"][used])
    hidden = seen[places] == toy_tokenizer.mask_id
    assert np.array_equal(seen[places][~hidden], ids[places][~hidden]), "the rest stays: no random tokens"
    assert abs(hidden.mean() - 0.85) < 3 * math.sqrt(0.85 * 0.15 / len(hidden))
    others = np.setdiff1d(np.arange(ids.size), places)
    assert np.array_equal(seen[others], ids[others])
    assert (batch_of(made(AS_DEBERTA, DEBERTA)[0], count)["masked_ids"].ravel()[places] == toy_tokenizer.mask_id).all()


def test_a_number_for_each_place_whatever_the_batch(made: Any) -> None:
    reader, _ = made(AS_ELECTRA, ELECTRA)
    rows, epochs = np.array([5, 2, 7]), np.array([1, 0, 1])
    batch = reader.batch(Key(9, 4, epochs, rows))
    columns = batch["masked"].reshape(3, -1) % LENGTH
    bits = random_bits(4, 9, epochs[:, None], rows[:, None], columns)
    found = batch["uniforms"].reshape(3, -1)
    assert found.dtype == np.float32 and np.array_equal(found, np.floor(uniform(bits) * 2**24) / 2**24)
    alone = reader.batch(Key(9, 8, epochs[1:2], rows[1:2]))
    assert np.array_equal(alone["uniforms"], found[1]) and len(np.unique(found)) > 6


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_are_as_frequent_as_the_softmax_says(temperature: float) -> None:
    """Chi-square with 6 degrees of freedom: below 22.46 in 999 of 1000 draws, and these are always the same."""
    count = 200_000
    logits = torch.tensor([0.3, -1.0, 2.0, float("-inf"), 0.0, -4.0, 1.5, 0.9])
    numbers = torch.from_numpy(uniform(random_bits(1, np.arange(count))).astype(np.float32)).clamp(max=1 - 2**-24)
    found = torch.bincount(sample_ids(logits.expand(count, -1), numbers, temperature), minlength=8).double()
    weights = np.exp(logits.double().numpy() / temperature)
    expected = count * torch.from_numpy(weights / weights.sum())
    assert found[3] == 0
    some = expected > 0
    assert float(((found - expected)[some] ** 2 / expected[some]).sum()) < 22.46


def test_a_number_falls_where_the_sums_say() -> None:
    logits = torch.tensor([0.0, 0.25, 0.25, 0.5, 0.0]).log()
    numbers = torch.tensor([0.0, 0.2499, 0.25, 0.4999, 0.5, 1 - 2**-24])
    assert sample_ids(logits.expand(6, -1), numbers, 1.0).tolist() == [1, 1, 2, 2, 3, 3]
    even = torch.zeros(6, 512, dtype=torch.bfloat16)  # 16 bits would add up to no more than a half of these
    assert sample_ids(even, numbers, 1.0).tolist() == [0, 127, 128, 255, 256, 511]


def test_unused_slots_replace_nothing() -> None:
    text = torch.tensor([[1, 7, 8, 2], [1, 9, 2, 0]])
    masked, targets = torch.tensor([1, 2, 5, 4]), torch.tensor([7, 8, 9, IGNORE_INDEX])
    found = replace_tokens(text, masked, targets, torch.tensor([7, 5, 6, 3]))
    assert found.tolist() == [[1, 7, 5, 2], [1, 6, 2, 0]] and text[0, 2] == 8


# losses


class Said(nn.Module):
    """A model that returns the given logits at the requested positions, and keeps the tokens that it read."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits, self.read = logits, torch.empty(0)

    def forward(self, tokens: Packed, positions: Tensor) -> Tensor:
        self.read = tokens.input_ids
        return self.logits[positions]


@pytest.mark.parametrize("outputs", [1, 2])
def test_losses_and_counts_are_those_of_the_formulas(made: Any, toy_tokenizer: Any, outputs: int) -> None:
    reader, _ = made(AS_ELECTRA, ELECTRA)
    batch = tensors(batch_of(reader))
    size, generator = batch["input_ids"].numel(), torch.Generator().manual_seed(1)
    said = torch.randn(size, toy_tokenizer.vocab_size, generator=generator)
    certain = batch["masked"][batch["targets"] != IGNORE_INDEX][::3]  # here the generator samples the text's own token
    said[certain, batch["input_ids"].flatten()[certain]] = 100.0
    judged = torch.randn(size, outputs, generator=generator)
    models = {"model": Said(judged), "generator": Said(said)}
    found = {name: float(value) for name, value in reader.objective.measure(models, batch).items()}

    ids, real = batch["input_ids"].flatten().tolist(), (batch["segment_ids"].flatten() > 0).tolist()
    corrupted, generator_loss = list(ids), 0.0
    slots = zip(batch["masked"].tolist(), batch["targets"].tolist(), batch["uniforms"].tolist(), strict=True)
    for place, target, number in slots:
        if target == IGNORE_INDEX:
            continue
        odds = np.exp(said[place].double().numpy())
        sums = np.cumsum(odds / odds.sum())
        corrupted[place] = int(np.searchsorted(sums, number * sums[-1], side="right"))
        generator_loss -= math.log(odds[target] / odds.sum())
    labels = [one != other for one, other in zip(corrupted, ids, strict=True)]
    assert not any(labels[place] for place in certain.tolist()), "a sample that is the text's own is original"
    assert models["model"].read.flatten().tolist() == corrupted and models["generator"].read is not models["model"].read
    assert torch.equal(models["generator"].read, batch["masked_ids"])
    logit = (judged[:, 0] if outputs == 1 else judged[:, 1] - judged[:, 0]).double().numpy()
    each = [math.log1p(math.exp(-z if label else z)) for z, label in zip(logit, labels, strict=True)]
    said_so = [z > 0 for z in logit]
    wanted = {
        "generator": generator_loss,
        "masked": int((batch["targets"] != IGNORE_INDEX).sum()),
        "discriminator": sum(loss for loss, counted in zip(each, real, strict=True) if counted),
        "read": sum(real),
        "replaced": sum(labels),
        "predicted_positive": sum(s and r for s, r in zip(said_so, real, strict=True)),
        "true_positive": sum(s and label for s, label in zip(said_so, labels, strict=True)),
        "correct": sum(s == label and r for s, label, r in zip(said_so, labels, real, strict=True)),
    }
    assert found == pytest.approx(wanted, rel=1e-5) and 0 < found["replaced"] < found["masked"]
    assert found.keys() == set(reader.objective.measured)
    losses = reader.objective.losses(models, batch)
    assert {name: float(value) for name, value in losses.items()} == {name: found[name] for name in losses}
    assert list(losses) == ["generator", "discriminator"]


def test_no_number_is_waited_for(made: Any, toy_tokenizer: Any) -> None:
    """The device `meta` has shapes alone: what asks for a value, or has a shape that depends on one, fails there."""
    reader, _ = made(AS_ELECTRA, ELECTRA)
    batch = {name: value.to("meta") for name, value in tensors(batch_of(reader)).items()}
    size = batch["input_ids"].numel()
    models = {"model": Said(torch.empty(size, 2)), "generator": Said(torch.empty(size, toy_tokenizer.vocab_size))}
    for model in models.values():
        model.logits = model.logits.to("meta")
    found = reader.objective.measure(models, batch)
    assert all(value.shape == () and value.device.type == "meta" for value in found.values())


def test_report_divides_and_weighs(made: Any) -> None:
    objective = made(dataclasses.replace(AS_ELECTRA, generator_weight=2.0, discriminator_weight=10.0), ELECTRA)[
        0
    ].objective
    sums = {"generator": 30.0, "masked": 15, "discriminator": 40.0, "read": 100}
    sums |= {"replaced": 10, "predicted_positive": 8, "true_positive": 6, "correct": 94}
    given = {name: torch.tensor(value) for name, value in sums.items()}
    found = objective.report(given, ValidationText("", 0.2, {"unigram_entropy": 3.0}))
    assert found == pytest.approx(
        {
            "loss": 2 * 2.0 + 10 * 0.4,
            "generator_loss": 2.0,
            "discriminator_loss": 0.4,
            "accuracy": 0.94,
            "precision": 0.75,
            "recall": 0.6,
            "replaced": 0.1,
            "base_rate_entropy": 0.3250829,
            "unigram_entropy": 3.0,
        }
    )
    nothing = given | {
        "replaced": torch.tensor(0),
        "predicted_positive": torch.tensor(0),
        "true_positive": torch.tensor(0),
    }
    empty = objective.report(nothing, ValidationText("other", 0.2, {}))
    assert (empty["precision"], empty["recall"], empty["base_rate_entropy"]) == (0.0, 0.0, 0.0)
    assert "unigram_entropy" not in empty


def test_no_better_than_the_base_rate_is_a_warning() -> None:
    assert entropy(0.15) == pytest.approx(0.4227091) and entropy(0.0) == entropy(1.0) == 0
    for loss in (0.30, 0.95 * 0.4227 - 1e-6):
        assert base_rate_warnings("the loss", loss, 0.4227, "it has hardly learned") == []
    (said,) = base_rate_warnings("the loss", 0.95 * 0.4227, 0.4227, "it has hardly learned")
    assert said.startswith("the loss is 0.4016, but a constant prediction reaches 0.4227: it has hardly learned;")


def test_losses_are_means_over_the_global_batch_in_their_weights(made: Any, monkeypatch: Any) -> None:
    """However the rows are spread over ranks and micro-batches; tokens without padding, special ones included."""
    settings = dataclasses.replace(AS_ELECTRA, generator_weight=3.0, discriminator_weight=20.0)

    def gradients(world_size: int, accumulation: int) -> list[Tensor]:
        reader, models = made(settings, ELECTRA)
        how = OptimConfig(), ScheduleConfig(), [ValidationText("", 1.0, {})]
        module = ReadyPretraining(reader.objective, models, *how)
        module.trainer = SimpleNamespace(world_size=world_size, accumulate_grad_batches=accumulation)
        order = GlobalOrder(reader.plan.num_rows, 8, seed=0)
        for rank in range(world_size):
            batches = TrainRows(reader, order, Share(rank, world_size, accumulation), range(1, 10))
            for number in range(accumulation):
                loss = module.training_step(tensors(batches[number]), number)
                (loss / accumulation / world_size).backward()
        return [parameter.grad for parameter in module.parameters()]

    monkeypatch.setattr(Pretraining, "log", lambda *_, **__: None)
    wanted = gradients(1, 1)
    reader, models = made(settings, ELECTRA)
    batch = tensors(TrainRows(reader, GlobalOrder(reader.plan.num_rows, 8, seed=0), Share(), range(1, 2))[0])
    sums = reader.objective.measure(models, batch)
    assert (int(batch["num_masked"]), int(batch["num_read"])) == (int(sums["masked"]), int(sums["read"]))
    (3 * sums["generator"] / sums["masked"] + 20 * sums["discriminator"] / sums["read"]).backward()
    own = dict.fromkeys(parameter for model in models.values() for parameter in model.parameters())
    for one, parameter in zip(wanted, own, strict=True):
        torch.testing.assert_close(one, parameter.grad, atol=1e-6, rtol=1e-4)
    for world_size, accumulation in ((1, 4), (2, 1), (4, 2)):
        for one, other in zip(gradients(world_size, accumulation), wanted, strict=True):
            torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-4)


def test_validation_is_the_same_whatever_is_trained(made: Any) -> None:
    odd = dataclasses.replace(AS_ELECTRA, mlm_probability=0.4, mask_share=0.5, whole_word=True, temperature=3.0)
    usual = made(odd, ELECTRA)[0].objective.for_validation().config
    assert usual == dataclasses.replace(AS_ELECTRA, mask_share=1.0)


def test_validation_draws_at_the_temperature_that_runs_are_compared_at(made: Any) -> None:
    found = []
    for temperature in (1.0, 50.0):
        reader, models = made(dataclasses.replace(AS_ELECTRA, temperature=temperature), ELECTRA)
        texts = [ValidationText("", 1.0, {})]
        module = ReadyPretraining(reader.objective, models, OptimConfig(), ScheduleConfig(), texts)
        module.validation_step(tensors(batch_of(reader, seed=0)), 0)
        found.append({name: float(value) for name, value in module.sums[""][1].compute().items()})
    assert found[0] == found[1] and found[0]["replaced"] > 0


@pytest.mark.parametrize("name", ["generator", "discriminator"])
def test_a_held_out_text_is_not_called_as_a_model(made: Any, name: str) -> None:
    reader, _ = made(AS_ELECTRA, ELECTRA)
    texts = [ValidationText("", 1.0, {}), ValidationText(name, 1.0, {})]
    with refused(where="held_out", found=f"'{name}', but the metric {name}_loss exists already"):
        check_names(reader.objective, texts)


@pytest.mark.slow  # a minute to compile
@pytest.mark.parametrize(("settings", "encoder"), [(AS_ELECTRA, ELECTRA), (AS_DEBERTA, DEBERTA)], ids=["es", "gdes"])
def test_compiled_losses_are_the_same(made: Any, settings: ReplacedTokens, encoder: EncoderConfig) -> None:
    reader, models = made(settings, encoder)
    compiled = torch.compile(reader.objective.losses, dynamic=False)
    gradients = []
    for losses in (reader.objective.losses, compiled):
        for count in (0, 8):  # a compiled loss does not keep the weights
            batch = tensors(batch_of(reader, seed=count))
            found = losses(models, batch)
            sum(found.values()).backward()
            gradients.append([float(value) for value in found.values()])
        gradients.append([float(p.grad.norm()) for model in models.values() for p in model.parameters()])
        for model in models.values():
            model.zero_grad()
    for one, other in zip(gradients[:3], gradients[3:], strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("settings", "encoder"), [(AS_ELECTRA, ELECTRA), (AS_DEBERTA, DEBERTA)], ids=["es", "gdes"])
def test_golden_loss_curves(made: Any, tmp_path: Path, settings: ReplacedTokens, encoder: EncoderConfig) -> None:
    """Ten steps in fp32 on one thread, without dropout; what moves them is another mask, sample, order or step."""
    reader, models = made(settings, encoder)
    how = OptimConfig(lr=1e-2), ScheduleConfig(warmup_steps=2), [ValidationText("", 0.5, {})]
    module = ReadyPretraining(reader.objective, models, *how)
    losses = Losses()
    trainer = build_trainer(cpu_training(), tmp_path, 10, 8, 10, [losses])
    order = GlobalOrder(reader.plan.num_rows, 8, seed=0)
    train = lambda share, steps: TrainRows(reader, order, share, steps)  # noqa: E731
    validation = lambda share: ValidationRows(reader, 8, share)  # noqa: E731
    trainer.fit(module, datamodule=ReadyBatches(train, [validation], 10))
    wanted = GOLDEN[settings.sharing]
    assert losses.values == pytest.approx(wanted["train"], rel=1e-4)
    found = {name.removeprefix("validation/"): float(value) for name, value in trainer.callback_metrics.items()}
    assert {name: found[name] for name in wanted["validation"]} == pytest.approx(wanted["validation"], rel=1e-3)


# sharing


def gradient_names(models: Mapping[str, nn.Module]) -> set[str]:
    return {
        f"{name}.{own}"
        for name, model in models.items()
        for own, parameter in model.named_parameters()
        if parameter.grad is not None and bool(parameter.grad.any())
    }


def test_each_model_learns_its_own_part_of_disentangled_embeddings(made: Any) -> None:
    reader, models = made(AS_DEBERTA, DEBERTA)
    batch = tensors(batch_of(reader))
    word, base = (models[name].encoder.input_embeddings for name in ("model", "generator"))
    assert isinstance(word, DeltaEmbedding) and word.base is base and not word.weight.any()
    with torch.no_grad():
        word.weight.normal_(0, 0.1)
    reader.objective.losses(models, batch)["generator"].backward()
    assert all(name.startswith("generator.") for name in gradient_names(models))
    assert base.weight.grad is not None and bool(base.weight.grad.any())
    for model in models.values():
        model.zero_grad()
    reader.objective.losses(models, batch)["discriminator"].backward()
    assert all(name.startswith("model.") for name in gradient_names(models))

    # by hand: the gradient of the difference equals the gradient of summed embeddings
    whole = nn.Embedding(*word.weight.shape, _weight=(word.weight + base.weight).detach())
    models["model"].encoder.embeddings.word = whole
    reader.objective.losses(models, batch)["discriminator"].backward()
    torch.testing.assert_close(whole.weight.grad, word.weight.grad, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize(("encoder", "count"), [(DEBERTA, 1), (BERT, 2)])
def test_the_folder_gets_the_sum(toy_tokenizer: Any, encoder: EncoderConfig, count: int) -> None:
    torch.manual_seed(0)
    built = AS_DEBERTA.build(toy_tokenizer).build(InitialModels(toy_tokenizer, encoder, None))
    model = built["model"].model.eval()
    word, base = model.encoder.input_embeddings, built["generator"].model.encoder.input_embeddings
    differences = [part for part in model.modules() if isinstance(part, DeltaEmbedding)]
    assert len(differences) == len(model.shared_parameters) == count
    with torch.no_grad():
        for parameter in {*model.parameters(), *built["generator"].model.parameters()}:
            parameter.normal_(0, 0.2)
    ids = torch.arange(5, 20).view(1, -1)
    tokens = Packed(ids, torch.arange(15).view(1, -1), torch.ones_like(ids))
    before = model(tokens, torch.arange(15))
    names = [name for name, _ in model.named_parameters()]
    saved = AS_DEBERTA.build(toy_tokenizer).saved(built)
    merged = saved["model"].model
    assert saved.keys() == {"model", "generator"} and type(merged.encoder.input_embeddings) is nn.Embedding
    assert torch.equal(merged.encoder.input_embeddings.weight, word.weight + base.weight)
    assert torch.equal(merged(tokens, torch.arange(15)), before) and [n for n, _ in merged.named_parameters()] == names
    # the trained model still has its differences, which an optimizer changes and a checkpoint holds
    assert built["model"].model is model and model.encoder.input_embeddings is word
    assert torch.equal(model(tokens, torch.arange(15)), before)


def test_shared_embeddings_are_one_and_the_projection_is_each_ones_own(made: Any) -> None:
    _, models = made(dataclasses.replace(AS_ELECTRA, generator=GeneratorConfig(size=0.75)), ELECTRA)
    ours, theirs = (dict(models[name].encoder.embeddings.named_parameters()) for name in ("model", "generator"))
    shared = {name for name in ours if ours[name] is theirs[name]}
    assert shared == {"word.weight", "position.weight", "token_type.weight", "norm.weight", "norm.bias"}
    assert ours["project.weight"].shape == (32, 16) and theirs["project.weight"].shape == (24, 16)


def test_of_two_families_the_words_are_shared_alone(made: Any) -> None:
    own = dataclasses.replace(ELECTRA, embedding_size=32, hidden_size=16, num_attention_heads=2)
    for sharing in ("es", "gdes"):
        _, models = made(ReplacedTokens(GeneratorConfig(encoder=own), sharing), BERT)
        ours, theirs = (models[name].encoder.embeddings for name in ("model", "generator"))
        assert (ours.word.weight is theirs.word.weight) == (sharing == "es") == (not models["model"].shared_parameters)
        assert ours.position.weight is not theirs.position.weight and type(ours.position) is nn.Embedding


# the generator


@pytest.mark.parametrize(
    ("encoder", "settings", "wanted"),
    [
        (ElectraConfig(256, 12, 4, 1024, embedding_size=128), {"size": 0.25}, (64, 12, 1, 256, 128)),
        (ElectraConfig(768, 12, 12, 3072, embedding_size=768), {"size": 1 / 3}, (256, 12, 4, 1024, 768)),
        (ElectraConfig(256, 12, 4, 1024), {"size": 0.5, "layers": 0.5}, (128, 6, 2, 512, 128)),
        (dataclasses.replace(DEBERTA, num_hidden_layers=3), {"layers": 0.5}, (32, 2, 2, 48, 32)),
        (DEBERTA, {"size": 0.5}, (16, 2, 1, 24, 32)),
        (DEBERTA, {"encoder": BERT}, (32, 2, 2, 48, 32)),
        (AlbertConfig(64, 4, 4, 96, embedding_size=24), {"size": 0.5, "layers": 0.1}, (32, 1, 2, 48, 24)),
        (BertConfig(60, 1, 6, 96), {"size": 0.5, "layers": 0.1}, (30, 1, 3, 48, 30)),
        (BertConfig(60, 1, 5, 96), {"size": 0.4}, (24, 1, 2, 38, 24)),
        (BertConfig(56, 1, 7, 96), {"size": 0.5}, (28, 1, 4, 48, 28)),
    ],
)  # fmt: skip
def test_the_generator_is_the_encoder_made_smaller(encoder: Any, settings: Any, wanted: tuple[int, ...]) -> None:
    found = GeneratorConfig(**settings).for_discriminator(encoder)
    sizes = found.sizes
    numbers = sizes.hidden_size, sizes.num_layers, sizes.num_heads, sizes.intermediate_size, found.word_width
    assert numbers == wanted


def test_what_cannot_be_shared_or_is_said_twice_is_an_error(toy_tokenizer: Any) -> None:
    narrow = ReplacedTokens(GeneratorConfig(size=0.5), "es")
    expected = "found embeddings of width 16 in the generator, and of width 32 in the encoder"
    with pytest.raises(DomainbertError, match=expected):
        narrow.check(BERT)
    with pytest.raises(DomainbertError, match=expected):
        narrow.build(toy_tokenizer).build(InitialModels(toy_tokenizer, BERT, None))
    with refused(where="encoder", found="next to size or layers"):
        GeneratorConfig(size=0.5, encoder=BERT)
    for name, value in {"discriminator_weight": 0.0, "temperature": 0.0, "mlm_probability": 1.0}.items():
        with refused(where=name, found=f"{value}..."):
            dataclasses.replace(narrow, **{name: value})


# transformers


def test_a_step_has_the_losses_and_gradients_of_transformers(made: Any, toy_tokenizer: Any) -> None:
    """ElectraForMaskedLM and ElectraForPreTraining on the same masks and samples, one text a row."""
    reader, shared = made(AS_ELECTRA, ELECTRA)
    models = {name: deepcopy(model) for name, model in shared.items()}  # transformers shares no embeddings
    generator_config = AS_ELECTRA.generator_config_for(ELECTRA)
    theirs: dict[str, Any] = {}
    kinds = {
        "model": ("ElectraForPreTraining", ELECTRA, "replaced"),
        "generator": ("ElectraForMaskedLM", generator_config, "masked_lm"),
    }
    for name, (kind, config, head) in kinds.items():
        with torch.no_grad():
            for parameter in models[name].parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        their_config = transformers.ElectraConfig(vocab_size=toy_tokenizer.vocab_size, **dataclasses.asdict(config))
        theirs[name] = getattr(transformers, kind)(their_config).eval()
        tensors_of = to_hugging_face(models[name].state_dict(), name_map(config, head))
        left = theirs[name].load_state_dict(tensors_of, strict=False)
        assert left.unexpected_keys == [] and set(left.missing_keys) <= {"generator_lm_head.weight"}
    batch = tensors(batch_of(reader))
    single = (batch["segment_ids"] == 1).long()
    first = single.flatten()[batch["masked"]] == 1
    alone = batch | {"segment_ids": single, "targets": batch["targets"].masked_fill(~first, IGNORE_INDEX)}
    found = reader.objective.measure(models, alone)

    used = alone["targets"] != IGNORE_INDEX
    labels = torch.full((single.numel(),), IGNORE_INDEX).scatter(0, batch["masked"][used], alone["targets"][used])
    guessed = theirs["generator"](batch["masked_ids"], attention_mask=single, labels=labels.view_as(single))
    torch.testing.assert_close(found["generator"] / found["masked"], guessed.loss, atol=2e-6, rtol=0)
    drawn = sample_ids(guessed.logits.flatten(0, 1)[batch["masked"]].detach(), batch["uniforms"], 1.0)
    corrupted = replace_tokens(batch["input_ids"], batch["masked"], alone["targets"], drawn)
    changed = (corrupted != batch["input_ids"]).long()
    judged = theirs["model"](corrupted, attention_mask=single, labels=changed)
    torch.testing.assert_close(found["discriminator"] / found["read"], judged.loss, atol=2e-6, rtol=0)
    (found["generator"] / found["masked"] + found["discriminator"] / found["read"]).backward()
    (guessed.loss + judged.loss).backward()
    for name in theirs:
        wanted = theirs[name].get_input_embeddings().weight.grad[1:]  # theirs never learn a padding that is sampled
        ours = models[name].encoder.input_embeddings.weight.grad[1:]
        torch.testing.assert_close(ours, wanted, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "encoder",
    [
        ELECTRA,
        DEBERTA,
        BERT,
        ModernBertConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=48),
    ],
    ids=lambda one: one.model_type,
)
def test_any_family_learns_it_and_both_sides_cost(made: Any, encoder: EncoderConfig) -> None:
    reader, models = made(ReplacedTokens(), encoder)
    assert isinstance(reader.objective, ReplacedTokensObjective)
    batch = tensors(batch_of(reader))
    optimizer = torch.optim.AdamW([*dict.fromkeys(p for m in models.values() for p in m.parameters())], lr=3e-3)
    history = []
    for _ in range(25):
        losses = reader.objective.losses(models, batch)
        sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append({name: value.item() for name, value in losses.items()})
    assert history[-1]["generator"] < 0.8 * history[0]["generator"]
    assert history[-1]["discriminator"] < 0.8 * history[0]["discriminator"]
    costs = flops_per_token(models["generator"], LENGTH, 0.15), flops_per_token(models["model"], LENGTH, 1.0)
    assert reader.objective.flops_per_token(models, LENGTH) == pytest.approx(sum(costs)) and costs[1] > costs[0] > 0


@pytest.mark.parametrize(("settings", "encoder"), [(AS_ELECTRA, ELECTRA), (AS_DEBERTA, DEBERTA)])
def test_both_models_start_from_the_same_static_embeddings(
    toy_tokenizer: Any, settings: ReplacedTokens, encoder: EncoderConfig
) -> None:
    """Also where they are narrower than the hidden states, and where one has differences to the other's."""
    vectors = torch.nn.functional.normalize(torch.randn(toy_tokenizer.vocab_size, 20), dim=1)
    vectors[::3] = 0
    tables = {}
    for static in (None, vectors):
        torch.manual_seed(0)
        built = settings.build(toy_tokenizer).build(
            InitialModels(toy_tokenizer, encoder, None, static_embeddings=static)
        )
        ids = torch.arange(toy_tokenizer.vocab_size)
        tables[static is not None] = [one.model.encoder.input_embeddings(ids) for one in built.values()]
    wanted = tables[False][0].detach().clone()
    initialise_table(wanted, vectors)
    assert (wanted != tables[False][0])[1].any()
    for found in tables[True]:
        torch.testing.assert_close(found, wanted)
