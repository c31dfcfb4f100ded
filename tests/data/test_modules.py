from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from domainbert.data.config import MaskingConfig
from domainbert.data.corpus_rows import rows_of_corpus
from domainbert.data.examples import Example, text_example, word_example
from domainbert.data.masking import IGNORED
from domainbert.data.modules import (
    LabelledBatches,
    LabelledTrainBatches,
    MaskedLMTrainBatches,
    MaskedLMValidationBatches,
    Share,
    TrainAndValidation,
)
from domainbert.data.order import GlobalOrder
from domainbert.tokenization.align import align_text, align_words

SHARES = [(world_size, accumulation) for world_size in (1, 2, 4) for accumulation in (1, 2, 4)]
LENGTH = 24


def micro_batches(make, world_size, accumulation, step):
    """The micro-batches of one optimiser step, over all ranks."""
    return [
        make(Share(rank, world_size, accumulation))[step * accumulation + micro_batch]
        for micro_batch in range(accumulation)
        for rank in range(world_size)
    ]


def rows_with_labels(batch):
    """Each row of a batch with the hidden token at each predicted place."""
    ids, segments, positions = batch["input_ids"], batch["segment_ids"], batch["position_ids"]
    places, labels = batch["positions"].reshape(len(ids), -1), batch["targets"].reshape(len(ids), -1)
    places = places - np.arange(len(ids))[:, None] * ids.shape[1]
    used = labels != IGNORED
    hidden = [
        tuple(zip(p[u].tolist(), t[u].tolist(), strict=True)) for p, t, u in zip(places, labels, used, strict=True)
    ]
    return [
        tuple(map(tuple, parts))
        for parts in zip(ids.tolist(), segments.tolist(), positions.tolist(), hidden, strict=True)
    ]


@pytest.fixture(scope="module", params=[False, True], ids=["pieces", "words"])
def readers(request, toy_corpus, toy_tokenizer):
    return rows_of_corpus(toy_corpus, toy_tokenizer, MaskingConfig(whole_word=request.param), LENGTH)


@pytest.mark.parametrize(("world_size", "accumulation"), SHARES)
def test_shares_add_up_to_the_global_batch(readers, world_size, accumulation):
    order = GlobalOrder(readers[0].plan.num_rows, 16, seed=5)

    def make(share):
        return MaskedLMTrainBatches(readers[0], order, share, range(12))

    assert len(make(Share(0, world_size, accumulation))) == 12 * accumulation
    for step in (0, 3, 11):
        whole = make(Share())[step]
        parts = micro_batches(make, world_size, accumulation, step)
        assert {len(part["input_ids"]) for part in parts} == {16 // world_size // accumulation}
        assert Counter(row for part in parts for row in rows_with_labels(part)) == Counter(rows_with_labels(whole))
        held = sum(int((part["targets"] != IGNORED).sum()) for part in parts)
        assert {part["num_targets"] for part in parts} == {whole["num_targets"]} == {held}
        text = sum(
            int((part["segment_ids"] > 0).sum()) - 2 * int(part["segment_ids"].max(axis=1).sum()) for part in parts
        )
        assert {part["num_tokens"] for part in parts} == {text}


def test_rows_hold_the_corpus(readers, toy_corpus, toy_tokenizer):
    """A pass over the rows, with what was hidden put back, is every document once."""
    reader = readers[0]
    rows = np.arange(reader.plan.num_rows)
    batch = reader.batch(rows, np.zeros_like(rows), seed=1)
    ids = batch["input_ids"].copy()
    used = batch["targets"] != IGNORED
    np.put(ids, batch["positions"][used], batch["targets"][used])
    found = Counter(
        ids[(batch["segment_ids"] > 0) & ~np.isin(ids, [toy_tokenizer.cls_id, toy_tokenizer.sep_id])].tolist()
    )
    assert found == Counter(toy_corpus.train.take(0, toy_corpus.train.num_tokens).tolist())
    assert found[toy_tokenizer.unk_id] > 20, "the corpus has unknown words, which are never hidden"
    assert toy_tokenizer.unk_id not in batch["targets"]
    assert (ids[batch["segment_ids"] == 0] == toy_tokenizer.pad_id).all()
    starts = batch["position_ids"] == 0
    assert (ids[starts & (batch["segment_ids"] > 0)] == toy_tokenizer.cls_id).all()


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_validation_rows_once_and_masked_alike_in_every_run(toy_corpus, toy_tokenizer, world_size):
    def everything(masking, batch_size):
        reader = rows_of_corpus(toy_corpus, toy_tokenizer, masking, LENGTH)[1]
        ranks = [MaskedLMValidationBatches(reader, batch_size, Share(r, world_size)) for r in range(world_size)]
        return reader, Counter(row for rank in ranks for i in range(len(rank)) for row in rows_with_labels(rank[i]))

    reader, found = everything(MaskingConfig(), 4)
    assert sum(found.values()) == reader.plan.num_rows > 8
    assert everything(MaskingConfig(0.4, 1.0, 0.0, True), 3)[1] == found
    hidden = sum(len(row[3]) for row in found.elements())
    assert hidden == np.maximum(np.rint(0.15 * reader.plan.maskable_tokens), 1).sum()


@pytest.fixture(scope="module")
def examples(toy_tokenizer) -> list[Example]:
    generator = np.random.default_rng(0)
    sentences = [generator.choice(["men's", "rates", "bank", "x"], 1 + n * 5 % 30).tolist() for n in range(40)]
    aligned = align_words(toy_tokenizer, sentences)
    return [word_example(words, [n % 2] * len(words.first_piece), np.arange(2), 16) for n, words in enumerate(aligned)]


def positions_of_item(batch):
    """For each item of a batch what its outputs and targets are, and the tokens that are read for them."""
    ids = np.asarray(batch["input_ids"]).ravel()
    read = zip(batch["example"].tolist(), batch["outputs"].tolist(), batch["targets"].tolist(),
               ids[batch["positions"]].tolist(), strict=True)  # fmt: skip
    found = [(int(batch["items"][example]), *rest) for example, *rest in read]
    return Counter(found)


@pytest.mark.parametrize(("world_size", "accumulation"), SHARES)
def test_shares_of_labelled_batches_add_up(examples, toy_tokenizer, world_size, accumulation):
    order = GlobalOrder(len(examples), 16, seed=5)

    def make(share):
        return LabelledTrainBatches(examples, toy_tokenizer, order, share, range(6))

    for step in (0, 2, 5):  # step 2 spans the end of the first pass
        whole = make(Share())[step]
        parts = micro_batches(make, world_size, accumulation, step)
        assert sum((positions_of_item(part) for part in parts), Counter()) == positions_of_item(whole)
        assert sorted(i for part in parts for i in part["items"].tolist()) == sorted(order.batch(step)[1].tolist())
        held = sum(int((part["targets"] != IGNORED).sum()) for part in parts)
        assert {part["num_targets"] for part in parts} == {held}
        assert {part["num_examples"] for part in parts} == {16}


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_labelled_validation_has_each_example_once_within_the_budget(examples, toy_tokenizer, world_size):
    ranks = [LabelledBatches(examples, toy_tokenizer, 100, Share(rank, world_size)) for rank in range(world_size)]
    assert sorted(item for rank in ranks for batch in rank.batches for item in batch) == list(range(len(examples)))
    for rank in ranks:
        sizes = [[examples[item].num_tokens for item in batch] for batch in rank.batches]
        assert all(sum(batch) <= 100 or len(batch) == 1 for batch in sizes)
        assert all(sum(one) + other[0] > 100 for one, other in itertools.pairwise(sizes)), "filled up"
        flat = [size for batch in sizes for size in batch]
        assert flat == sorted(flat, reverse=True)
        assert sum(len(rank[i]["items"]) for i in range(len(rank))) == len(flat)
    alone = LabelledBatches(examples, toy_tokenizer, 1, Share())
    assert all(len(batch) == 1 for batch in alone.batches) and len(alone) == len(examples)


def test_texts_that_tokenize_to_nothing_have_a_cls(toy_tokenizer):
    empty = [text_example(words, 1, 16) for words in align_text(toy_tokenizer, ["", "\x00", "bank"])]
    batch = LabelledBatches(empty, toy_tokenizer, 100, Share())[0]
    assert batch["input_ids"].ravel()[batch["positions"]].tolist() == [toy_tokenizer.cls_id] * 3
    assert sorted(batch["items"].tolist()) == [0, 1, 2]


@pytest.mark.parametrize(("num_workers", "first"), [(0, 2), (2, 2), (0, 0)])
def test_loaders_give_the_rank_its_batches_from_the_next_step_on_whatever_the_workers(readers, num_workers, first):
    order = GlobalOrder(readers[0].plan.num_rows, 8, seed=2)
    data = TrainAndValidation(
        lambda share, steps: MaskedLMTrainBatches(readers[0], order, share, steps),
        lambda share: MaskedLMValidationBatches(readers[1], 4, share),
        5,
        num_workers,
    )
    on_cpu = SimpleNamespace(root_device=torch.device("cpu"))
    data.trainer = SimpleNamespace(
        global_step=first, global_rank=1, world_size=2, accumulate_grad_batches=2, strategy=on_cpu
    )
    share = Share(1, 2, 2)
    wanted = MaskedLMTrainBatches(readers[0], order, share, range(first, 5))
    loader = data.train_dataloader()
    assert not loader.pin_memory
    found = list(loader)
    assert data.on_before_batch_transfer(found[0], 0) is found[0]
    assert len(loader) == len(found) == 2 * (5 - first)
    assert [(batch["step"], batch["micro_batch"]) for batch in found[-3:]] == [(3, 1), (4, 0), (4, 1)]
    for index, batch in enumerate(found):
        assert batch.keys() == wanted[index].keys() and batch["num_targets"] == wanted[index]["num_targets"]
        for name in ("input_ids", "position_ids", "segment_ids", "positions", "targets"):
            assert torch.equal(batch[name], torch.from_numpy(wanted[index][name]))
    assert len(list(data.val_dataloader()[0])) == len(MaskedLMValidationBatches(readers[1], 4, share))


def test_what_goes_to_a_gpu_is_pinned_and_its_texts_are_counted(readers, monkeypatch):
    data = TrainAndValidation(
        lambda share, steps: MaskedLMTrainBatches(
            readers[0], GlobalOrder(readers[0].plan.num_rows, 8, seed=2), share, steps
        ),
        lambda share: MaskedLMValidationBatches(readers[1], 4, share),
        5,
        num_workers=0,
    )
    on_gpu = SimpleNamespace(root_device=torch.device("cuda", 0))
    data.trainer = SimpleNamespace(
        global_step=0, global_rank=0, world_size=1, accumulate_grad_batches=1, strategy=on_gpu
    )
    assert data.train_dataloader().pin_memory and data.val_dataloader()[0].pin_memory
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    batch = {"segment_ids": torch.tensor([[1, 1, 2, 2], [1, 1, 1, 0]]), "step": 3}
    moved = data.on_before_batch_transfer(batch, 0)
    assert moved["boundaries"].tolist() == [0, 2, 4, 7, 8] and moved.keys() == {"segment_ids", "step", "boundaries"}
    assert len(pinned) == 1 and "boundaries" not in batch
