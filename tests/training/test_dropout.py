"""Dropout depends on seed, step and place in the global batch, and on nothing else."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from domainbert.data.batches import GlobalOrder, LabelledTrainBatches, Share
from domainbert.distillation.batches import CountedRows
from domainbert.distillation.prediction_config import SoftTargets
from domainbert.distillation.weighted import WeightedLosses, sizes_of
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.layers import Dropout
from domainbert.pretraining.batches import TrainRows
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.task import ClassificationTask
from domainbert.training.config import OptimConfig, ScheduleConfig
from tests.ready_made import CorpusDistillation, ReadyFineTuning
from tests.tiny_training import masked_lm_module

RATE, STEPS = 0.5, 4
ALONE = Share()
KINDS = ("masked_lm", "classification", "distillation")


@pytest.fixture
def dropped(reader, tokenizer):
    """Return the masks of each dropout of a training by (layer, step, micro-batch): per row, of its tokens."""
    config = BertConfig(
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
        **{"hidden_dropout_prob": RATE, "attention_probs_dropout_prob": RATE, "max_position_embeddings": 32},
    )
    words = np.random.default_rng(0).choice([*"abcdefgh"], (40, 6))
    task = ClassificationTask(("x", "y"))
    examples = task.encode([LabelledText(" ".join(six), "xy"[n % 2], n) for n, six in enumerate(words)], tokenizer, 32)

    def build(kind: str, seed: int):
        torch.manual_seed(0)
        vocabulary = VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id)
        head = "sequence" if kind == "classification" else "masked_lm"
        model = build_model(config, vocabulary, head, 2)
        settings = OptimConfig(), ScheduleConfig()
        if kind == "masked_lm":
            return masked_lm_module(reader, model, *settings, seed=seed)
        if kind == "classification":
            return ReadyFineTuning(model, task, *settings, seed)
        losses = WeightedLosses([SoftTargets()], sizes_of(model.encoder), sizes_of(model.encoder))
        teacher = build_model(config, vocabulary, head)
        return CorpusDistillation(model, [teacher], losses, *settings, seed)

    def batches_of(kind: str, share: Share):
        steps = range(STEPS)
        if kind == "classification":
            return LabelledTrainBatches(examples, tokenizer, GlobalOrder(len(examples), 8, 0), share, steps)
        rows = TrainRows(reader, GlobalOrder(reader.plan.num_rows, 8, 0), share, steps)
        return CountedRows(rows) if kind == "distillation" else rows

    def run(kind: str, seed: int = 1, share: Share = ALONE, disturb: int = 0):
        module = build(kind, seed).train()
        module.trainer = SimpleNamespace(
            global_rank=share.rank, world_size=share.world_size, accumulate_grad_batches=share.accumulation
        )
        found, here, segments, num_reads = {}, [0, 0], [torch.empty(0)], [0]
        parts = [part for part in module.model.modules() if isinstance(part, Dropout)]

        def note(part, _, output) -> None:
            real = segments[0] > 0
            rows = (
                [row[own] for row, own in zip(output == 0, real, strict=True)]
                if output.shape[:2] == real.shape
                else output[: num_reads[0]] == 0  # behind them stand some that fill up, and drop what the first does
            )
            found[parts.index(part), here[0], here[1]] = [row.flatten() for row in rows]

        for part in parts:
            part.register_forward_hook(note)
        data = batches_of(kind, share)
        for index in range(len(data)):
            arrays = data[index].items()
            batch = {name: torch.from_numpy(np.asarray(value)) for name, value in arrays}
            batch |= {name: int(batch[name]) for name in ("step", "micro_batch")}
            here[:], segments[0] = (batch["step"], batch["micro_batch"]), batch["segment_ids"]
            num_reads[0] = len(batch["positions"])
            torch.manual_seed(disturb + index)
            module.trainer.global_step = batch["step"]
            module.on_train_batch_start(batch, index)
            module.training_step(batch, index)
            module.on_train_batch_end(None, batch, index)
        assert len(found) == len(parts) * len(data) and len(parts) >= 2
        return found

    return run


def independent(one, other) -> bool:
    """Elements that are dropped with probability 1/2, here and there: half of them agree."""
    one, other = (torch.cat(mask) if isinstance(mask, list) else mask for mask in (one, other))
    size = min(len(one), len(other))
    agree = (one[:size] == other[:size]).double().mean().item()
    return abs(agree - 0.5) < 5 * 0.5 / size**0.5


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_and_step_drop_the_same_whatever_was_drawn_before(dropped, kind):
    one, other = dropped(kind), dropped(kind, disturb=1000)
    assert one.keys() == other.keys()
    assert all(torch.equal(torch.cat(mask), torch.cat(other[place])) for place, mask in one.items())


@pytest.mark.parametrize("kind", KINDS)
def test_layers_steps_and_micro_batches_differ(dropped, kind):
    found = dropped(kind, share=Share(0, 1, 2))
    assert {place[1:] for place in found} == set(itertools.product(range(STEPS), range(2)))
    for one, other in itertools.combinations(found, 2):
        assert independent(found[one], found[other]), f"{one} and {other}"


@pytest.mark.parametrize("kind", KINDS)
def test_rows_differ(dropped, kind):
    for place, mask in dropped(kind).items():
        for one, other in itertools.combinations(mask, 2):
            assert independent(one, other), place


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_differ(dropped, kind):
    one, other = dropped(kind), dropped(kind, seed=2)
    for place, mask in one.items():
        assert independent(mask, other[place]), place


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_differ(dropped, kind):
    one, other = (dropped(kind, share=Share(rank, 2, 1)) for rank in range(2))
    for place, mask in one.items():
        assert independent(mask, other[place]), place
