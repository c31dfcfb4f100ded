"""Adversarial training and R-Drop: one step against formulas by hand, however texts are packed and batches divided."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import GlobalOrder, LabelledTrainBatches, Share
from domainbert.data.examples import entry_ids
from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.config import HeadConfig, VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.encoders.used_entries import UsedEntries
from domainbert.labelled.entities import Sentence
from domainbert.stages.finetune import Finetune
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.tasks.finetuning import fgm_perturbation, perturbed_embeddings, symmetric_divergence
from domainbert.tasks.loss_config import AdversarialConfig, RDropConfig
from domainbert.tasks.multi_label.files import LabelledText as TextWithLabels
from domainbert.tasks.multi_label.task import MultiLabelTask
from domainbert.tasks.ner.config import Ner
from domainbert.tasks.ner.task import CrfNerTask, NerTask
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.task import ParsingTask
from domainbert.tasks.task import Task
from tests.ready_made import fine_tuning
from tests.tiny_training import CONFIG, logs_each_step

EPSILON, ALPHA = 0.7, 0.4
TAGS, CLASSES = ("O", "B-p", "I-p"), ("x", "y", "z")
TASKS = ("tokens", "classes", "labels")


@pytest.fixture(params=TASKS)
def case(request, tokenizer) -> SimpleNamespace:
    """A task and its examples; some are longer than a window, and a row holds several."""
    generator = np.random.default_rng(0)
    texts = [generator.choice([*"abcdefgh", "men's"], size).tolist() for size in (5, 14, 3, 9, 12, 4, 2, 7)]
    task: Task[Any, Any]
    if request.param == "tokens":
        task = NerTask(TAGS)
        tags = [[TAGS[min(n % 4, 2)] if n % 4 else "O" for n in range(len(words))] for words in texts]
        items: Any = [Sentence(tuple(w), tuple(t), line=1, document=0) for w, t in zip(texts, tags, strict=True)]
    elif request.param == "classes":
        task = ClassificationTask(CLASSES)
        items = [LabelledText(" ".join(words), CLASSES[n % 3], n) for n, words in enumerate(texts)]
    else:
        task = MultiLabelTask(CLASSES)
        items = [TextWithLabels(" ".join(words), CLASSES[: n % 3], n) for n, words in enumerate(texts)]
    examples = task.encode(items, tokenizer, 10)
    assert {1, 2} <= {len(example.windows) for example in examples}
    return SimpleNamespace(task=task, examples=examples, tokenizer=tokenizer)


def model_of(case, dropout: float = 0.0) -> EncoderWithHead:
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    vocabulary = VocabularyFacts(case.tokenizer.vocab_size, case.tokenizer.pad_id)
    return build_model(config, vocabulary, case.task.head, len(case.task.labels)).train()


def batches(case, size: int, accumulation: int = 1, examples=None) -> list[dict[str, Any]]:
    share, order = Share(0, 1, accumulation), GlobalOrder(size, size, 0)
    made = LabelledTrainBatches(examples or case.examples, case.tokenizer, order, share, range(1))
    tensors = [{name: torch.from_numpy(np.asarray(value)) for name, value in made[n].items()} for n in range(len(made))]
    return [one | {name: int(one[name]) for name in ("step", "micro_batch", "longest")} for one in tensors]


def train_step(case, model, accumulation: int = 1, **settings) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The terms that are logged of an optimiser step, and its gradient."""
    module = fine_tuning(model, case.task, **settings).train()
    module.trainer = SimpleNamespace(
        global_rank=0,
        world_size=1,
        accumulate_grad_batches=accumulation,
        precision="32-true",
        strategy=SimpleNamespace(reduce=lambda value, reduce_op: value),
        **logs_each_step(),
    )
    logged: dict[str, Tensor] = {}
    module.log = logged.__setitem__
    for index, batch in enumerate(batches(case, len(case.examples), accumulation)):
        module.on_train_batch_start(batch, index)
        (module.training_step(batch, index) / accumulation).backward()
        module.on_train_batch_end(None, batch, index)
    gradient = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    module.configure_gradient_clipping(torch.optim.SGD(module.parameters(), 0.1))
    return {name.removeprefix("train/"): float(value) for name, value in logged.items()}, gradient


class Given(nn.Module):
    """In place of the word embeddings: these, whatever is looked up."""

    def __init__(self, embedded: Tensor) -> None:
        super().__init__()
        self.embedded = embedded

    def forward(self, _: Tensor) -> Tensor:
        return self.embedded


def by_hand(case, model) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Both losses and the gradient of their sum, each text computed alone, its embeddings moved by a loop."""
    whole = batches(case, len(case.examples))[0]
    count, table = float(whole[case.task.loss_divisor]), model.encoder.embeddings.word.weight
    sums = {"task": 0.0, "adversarial": 0.0}
    for example in case.examples:
        (batch,) = batches(case, 1, examples=[example])
        leaf = table.detach()[batch["input_ids"]].clone().requires_grad_()

        def loss_of(embedded: Tensor, batch=batch) -> Tensor:
            words, model.encoder.embeddings.word = model.encoder.embeddings.word, Given(embedded)
            loss = case.task.loss(model(Packed.of(batch), batch["positions"]), batch)
            model.encoder.embeddings.word = words
            return loss

        (gradient,) = torch.autograd.grad(loss_of(leaf), leaf)
        move = torch.zeros_like(gradient)
        for row, segments in enumerate(batch["segment_ids"].tolist()):
            for window in set(segments) - {0}:
                here = [place for place, one in enumerate(segments) if one == window]
                norm = float(np.sqrt((gradient[row, here].double().numpy() ** 2).sum()))
                move[row, here] = EPSILON * gradient[row, here] / norm
        embedded = model.encoder.embeddings.word(batch["input_ids"])
        losses = {"task": loss_of(embedded), "adversarial": loss_of(embedded + move)}
        (sum(losses.values()) / count).backward()
        for name, loss in losses.items():
            sums[name] += float(loss.detach()) / count
    return sums, {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


def assert_same(found, wanted, atol: float = 2e-6) -> None:
    (losses, gradient), (expected, by_name) = found, wanted
    assert {name: losses[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert gradient.keys() == by_name.keys()
    for name, tensor in by_name.items():
        torch.testing.assert_close(gradient[name], tensor, atol=atol, rtol=1e-4, msg=name)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_adversarial_training_by_hand(case, accumulation) -> None:
    wanted = by_hand(case, model_of(case))
    assert wanted[0]["adversarial"] > 1.01 * wanted[0]["task"], "the move is uphill"
    found = train_step(case, model_of(case), accumulation, adversarial=AdversarialConfig(EPSILON))
    assert_same(found, wanted)
    assert found[0]["loss"] == pytest.approx(sum(wanted[0].values()), rel=1e-5)


def test_adversarial_training_with_the_entries_in_use_and_with_frozen_embeddings(case) -> None:
    wanted = by_hand(case, model_of(case))
    model, name = model_of(case), "encoder.embeddings.word.weight"
    ids = torch.from_numpy(entry_ids(case.examples, case.tokenizer))
    entries = UsedEntries(model, ids)
    compact = train_step(case, model, row=entries.row, adversarial=AdversarialConfig(EPSILON))
    used = {**wanted[1], name: wanted[1][name][ids.unique()]}
    assert len(used[name]) < case.tokenizer.vocab_size
    assert_same(compact, (wanted[0], used))
    frozen = model_of(case)
    frozen.encoder.freeze(1)
    still = ("encoder.embeddings.", "encoder.layers.0.")
    learning = {name: tensor for name, tensor in wanted[1].items() if not name.startswith(still)}
    assert_same(train_step(case, frozen, adversarial=AdversarialConfig(EPSILON)), (wanted[0], learning))


def test_moves_have_the_length_that_is_asked_for() -> None:
    segments = torch.tensor([[1, 1, 2, 0], [1, 2, 2, 2]])
    gradient = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)) * (segments > 0).unsqueeze(-1)
    gradient[1, 0] = 0  # a text whose loss is flat
    moves = fgm_perturbation(gradient, segments, 2.5)
    for row, places in ((0, [0, 1]), (0, [2]), (1, [1, 2, 3])):
        assert float(moves[row, places].norm()) == pytest.approx(2.5, rel=1e-6)
        scale = moves[row, places] / gradient[row, places]
        torch.testing.assert_close(scale, scale[0, 0].expand_as(scale))
    assert not moves[0, 3].any() and not moves[1, 0].any()
    tiny = torch.zeros(1, 4, 3)  # a text that is learnt by heart: its square is 0 in fp32
    tiny[0, 0, 0] = 1e-23
    assert float(fgm_perturbation(tiny, torch.ones(1, 4, dtype=torch.int64), 2.5).norm()) <= 2.5
    rows = torch.ones(6, 2, 3)  # more of them than tokens in one
    torch.testing.assert_close(fgm_perturbation(rows, torch.ones(6, 2, dtype=torch.int64), 6**0.5), rows)


def test_embeddings_are_moved_as_long_as_it_is_asked_for() -> None:
    embeddings, ids = nn.Embedding(5, 3), torch.tensor([[1, 4]])
    before, by = embeddings(ids), torch.tensor([[[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]]])
    with perturbed_embeddings(embeddings, by):
        assert torch.equal(embeddings(ids), before + by)
    assert torch.equal(embeddings(ids), before)


def noted_passes(model) -> list[Tensor]:
    """The logits of every pass from now on."""
    passes: list[Tensor] = []
    model.register_forward_hook(lambda _, __, output: passes.append(output.detach()))
    return passes


def outputs_by_hand(case, logits: Tensor, batch) -> np.ndarray:
    """Logits in double precision of what the loss is a mean over: of positions, or of texts over their windows."""
    rows, example = logits.double().numpy(), batch["example"].numpy()
    if case.task.loss_divisor == "num_targets":
        return rows
    return np.stack([rows[example == one].mean(axis=0) for one in range(len(batch["items"]))])


def r_drop_by_hand(task, one: np.ndarray, other: np.ndarray) -> float:
    """Half of KL(p || q) + KL(q || p), of a softmax or of each label by itself, its mean over labels; summed."""
    if task.output_comparison.divergence is None:
        p, q = (np.exp(side) / np.exp(side).sum(axis=-1, keepdims=True) for side in (one, other))
        return float((p * np.log(p / q) + q * np.log(q / p)).sum()) / 2
    p, q = (1 / (1 + np.exp(-side)) for side in (one, other))
    each = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    each += q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    return float(each.mean(axis=-1).sum()) / 2


@pytest.mark.parametrize("task", [ClassificationTask(CLASSES), MultiLabelTask(CLASSES)], ids=["softmax", "labels"])
def test_predictions_far_from_each_other(task) -> None:
    """Where the two divergences differ; logits of half precision are compared in single precision."""
    one, other = 3 * torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    found = float(symmetric_divergence(task.output_comparison, one, other))
    assert found == pytest.approx(r_drop_by_hand(task, one.double().numpy(), other.double().numpy()), rel=1e-5)
    if task.output_comparison.divergence is None:
        one, other = one.bfloat16(), other.bfloat16()
        wanted = r_drop_by_hand(task, one.double().numpy(), other.double().numpy())
        assert float(symmetric_divergence(task.output_comparison, one, other)) == pytest.approx(wanted, rel=1e-5)


def test_r_drop_by_hand(case) -> None:
    """Two passes whose dropout differs, the losses of both, and alpha times their divergence."""
    model = model_of(case, dropout=0.3)
    passes = noted_passes(model)
    losses, _ = train_step(case, model, r_drop=RDropConfig(ALPHA))
    (batch,) = batches(case, len(case.examples))
    count = float(batch[case.task.loss_divisor])
    assert len(passes) == 2 and float((passes[0] - passes[1]).abs().max()) > 0.01
    sides = [outputs_by_hand(case, logits, batch) for logits in passes]
    assert (batch["targets"] != IGNORE_INDEX).all()
    assert losses["r_drop"] == pytest.approx(ALPHA * r_drop_by_hand(case.task, *sides) / count, rel=1e-4)
    both = sum(float(case.task.loss(logits, batch)) for logits in passes) / count
    assert losses["task"] == pytest.approx(both, rel=1e-5)
    assert losses["loss"] == pytest.approx(losses["task"] + losses["r_drop"], rel=1e-6)


def test_without_dropout_both_passes_agree(case) -> None:
    """R-Drop is then twice the loss, and nothing else."""
    plain, gradient = train_step(case, model_of(case))
    losses, doubled = train_step(case, model_of(case), r_drop=RDropConfig(ALPHA))
    assert "task" not in plain and losses["r_drop"] == 0.0
    assert losses["loss"] == pytest.approx(2 * plain["loss"], rel=1e-6)
    for name, tensor in gradient.items():
        torch.testing.assert_close(doubled[name], 2 * tensor, atol=2e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_both_with_dropout_do_not_depend_on_micro_batches(case, checkpointing) -> None:
    """Also where layers are computed again in the backward passes."""
    settings = {"adversarial": AdversarialConfig(EPSILON), "r_drop": RDropConfig(ALPHA)}
    wanted = train_step(case, model_of(case, dropout=0.3), 1, **settings)
    assert set(wanted[0]) >= {"task", "adversarial", "r_drop", "loss"}
    for accumulation in (2, 8):
        model = model_of(case, dropout=0.3)
        model.encoder.activation_checkpointing = checkpointing
        found = train_step(case, model, accumulation, **settings)
        names = ("task", "adversarial", "r_drop", "loss")
        assert_same(found, ({name: wanted[0][name] for name in names}, wanted[1]), atol=1e-5)


def test_r_drop_is_refused_where_predictions_cannot_be_compared(case) -> None:
    def refused(task: Task[Any, Any], head: str) -> str:
        model = build_model(CONFIG, VocabularyFacts(30, 0), head, 3)
        with pytest.raises(DomainbertError) as error:
            fine_tuning(model, task, r_drop=RDropConfig())
        return str(error.value)

    files = {"model": Path("model"), "train": Path("train.conll"), "validation": Path("dev.conll")}
    for config, found in {
        Ner(head="crf"): "the tags of a CRF",
        Parsing(): "found with Parsing, whose heads",
    }.items():
        with pytest.raises(DomainbertError, match=f"^r_drop: {found}"):
            Finetune(task=config, r_drop=RDropConfig(), **files)
        assert Finetune(task=config, **files).r_drop is None
    said = refused(CrfNerTask(TAGS), "crf")
    assert said == "r_drop: the tags of a CRF depend on each other; expected head: linear, or no r_drop"
    parser = build_model(CONFIG, VocabularyFacts(30, 0), HeadConfig("biaffine", arc_size=4, label_size=5), 3)
    with pytest.raises(DomainbertError, match=r"^r_drop: predictions of parsing cannot be compared"):
        fine_tuning(parser, ParsingTask(CLASSES), r_drop=RDropConfig())
    silent = type(
        "Silent", (ClassificationTask,), {"output_comparison": None, "__module__": ClassificationTask.__module__}
    )
    assert refused(silent(CLASSES), "sequence").startswith("r_drop: predictions of classification cannot be compared")
