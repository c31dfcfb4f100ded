"""The global batch of a step is the same however many processes train, and however many build batches."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from domainbert.data.batches import GlobalOrder, LabelledTrainBatches, Share
from domainbert.data.examples import word_example
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.tokenization.align import align_words
from tests.ready_made import ReadyBatches, rank_of_trainer
from tests.toy_corpus import corpus_readers

STEPS, BATCH = 8, 16
LAYOUTS = [(1, 4), (2, 1), (4, 0)]


class NotedRows(PackedRowsReader):
    """Batches that say which rows they are made of."""

    def batch(self, key):
        return super().batch(key) | {"rows": key.rows, "epochs": key.epochs}


@pytest.fixture(scope="module")
def readers(toy_corpus, toy_tokenizer):
    found = corpus_readers(toy_corpus, MaskedLM().build(toy_tokenizer), 24)
    return [NotedRows(reader.split, reader.objective, 24) for reader in found]


@pytest.fixture(scope="module")
def examples(toy_tokenizer):
    sentences = [["rates", "men's", "bank"] * (1 + number % 4) for number in range(37)]
    aligned = align_words(toy_tokenizer, sentences)
    return [word_example(words, [0] * len(words.first_piece), np.arange(2), 16) for words in aligned]


def batches_of_ranks(train, validation, world_size, num_workers, first=0):
    """For each rank its batches, from a loader with worker processes."""
    for rank in range(world_size):
        data = ReadyBatches(train, validation, STEPS, num_workers, BATCH)
        how = {"global_step": first, "estimated_stepping_batches": STEPS}
        data.trainer = rank_of_trainer(global_rank=rank, world_size=world_size, **how)
        yield Share(rank, world_size), list(data.train_dataloader())


def digest_of_rows(readers, world_size, num_workers, first=0):
    """SHA-256 over rows, passes and masked token ids of all steps from `first` on, each in the order of the batch."""
    order = GlobalOrder(readers[0].plan.num_rows, BATCH, seed=3)
    found = {name: np.zeros((STEPS, BATCH, *shape), np.int64) for name, shape in
             {"rows": (), "epochs": (), "input_ids": (24,)}.items()}  # fmt: skip
    ranks = batches_of_ranks(
        lambda share, steps: TrainRows(readers[0], order, share, steps),
        [lambda share: ValidationRows(readers[1], 4, share)],
        world_size,
        num_workers,
        first,
    )
    for share, batches in ranks:
        places = share.select(np.arange(BATCH), 0)
        for batch in batches:
            for name, values in found.items():
                values[batch["step"], places] = batch[name]
    assert np.array_equal(found["rows"][first:], [order.batch(step)[1] for step in range(first, STEPS)])
    return hashlib.sha256(b"".join(values[first:].tobytes() for values in found.values())).hexdigest()


@pytest.mark.parametrize(("world_size", "num_workers"), LAYOUTS)
def test_rows_and_masks_of_every_step_are_the_same(readers, world_size, num_workers):
    assert readers[0].plan.num_rows < STEPS * BATCH, "the steps span the end of a pass"
    assert digest_of_rows(readers, world_size, num_workers) == digest_of_rows(readers, 1, 0)


@pytest.mark.parametrize("world_size", [1, 4])
def test_the_rest_of_a_training_is_the_same_too(readers, world_size):
    rest = digest_of_rows(readers, 1, 0, first=3)
    assert rest == digest_of_rows(readers, world_size, 1, first=3) != digest_of_rows(readers, 1, 0)


@pytest.mark.parametrize(("world_size", "num_workers"), LAYOUTS)
def test_examples_of_every_step_are_the_same(examples, toy_tokenizer, world_size, num_workers):
    order = GlobalOrder(len(examples), BATCH, seed=3)
    ranks = batches_of_ranks(
        lambda share, steps: LabelledTrainBatches(examples, toy_tokenizer, order, share, steps),
        [],
        world_size,
        num_workers,
    )
    found: dict[int, list[int]] = {step: [] for step in range(STEPS)}
    for _, batches in ranks:
        for batch in batches:
            found[batch["step"]] += batch["items"].tolist()
    assert {step: sorted(items) for step, items in found.items()} == {
        step: sorted(order.batch(step)[1].tolist()) for step in range(STEPS)
    }
