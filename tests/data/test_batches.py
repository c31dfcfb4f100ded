from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from domainbert.data.batches import GlobalOrder, LabelledBatches, LabelledTrainBatches, Share
from domainbert.data.examples import text_example, word_example
from domainbert.data.packing import IGNORE_INDEX, Example
from domainbert.pretraining.batches import TrainRows, ValidationRows
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objective import Key
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.tokenization.align import align_text, align_words
from tests.toy_corpus import corpus_readers

SHARES = [(world_size, accumulation) for world_size in (1, 2, 4) for accumulation in (1, 2, 4)]


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
    used = labels != IGNORE_INDEX
    hidden = [
        tuple(zip(p[u].tolist(), t[u].tolist(), strict=True)) for p, t, u in zip(places, labels, used, strict=True)
    ]
    return [
        tuple(map(tuple, parts))
        for parts in zip(ids.tolist(), segments.tolist(), positions.tolist(), hidden, strict=True)
    ]


def test_the_documents_of_rows_are_named(readers):
    """Those whose tokens stand in the rows, by a count of all pieces."""
    reader = readers[0]
    offsets, plan = reader.split.document_offsets.tolist(), reader.plan
    for rows in ([0], [3, 1], [plan.num_rows - 1, 2, 2]):
        wanted = set()
        for piece in (p for row in rows for p in range(plan.row_offsets[row], plan.row_offsets[row + 1])):
            start, length = int(plan.starts[piece]), int(plan.lengths[piece])
            inside = [offsets[n] <= start and start + length <= offsets[n + 1] for n in range(len(offsets) - 1)]
            assert sum(inside) == 1
            wanted.add(inside.index(True))
        found = reader.describe(Key(0, 0, np.zeros(len(rows), np.int64), np.asarray(rows)))
        assert found == {"rows": rows, "documents": sorted(wanted)}
    assert len(wanted) > 1


@pytest.mark.parametrize(("world_size", "accumulation"), SHARES)
def test_shares_add_up_to_the_global_batch(readers, world_size, accumulation):
    order = GlobalOrder(readers[0].plan.num_rows, 16, seed=5)

    def make(share):
        return TrainRows(readers[0], order, share, range(12))

    assert len(make(Share(0, world_size, accumulation))) == 12 * accumulation
    for step in (0, 3, 11):
        whole = make(Share())[step]
        parts = micro_batches(make, world_size, accumulation, step)
        assert {len(part["input_ids"]) for part in parts} == {16 // world_size // accumulation}
        assert Counter(row for part in parts for row in rows_with_labels(part)) == Counter(rows_with_labels(whole))
        held = sum(int((part["targets"] != IGNORE_INDEX).sum()) for part in parts)
        assert {part["num_targets"] for part in parts} == {whole["num_targets"]} == {held}
        text = sum(
            int((part["segment_ids"] > 0).sum()) - 2 * int(part["segment_ids"].max(axis=1).sum()) for part in parts
        )
        assert {part["num_tokens"] for part in parts} == {text}


def test_rows_hold_the_corpus(readers, toy_corpus, toy_tokenizer):
    """A pass over the rows, with what was hidden put back, is every document once."""
    reader = readers[0]
    rows = np.arange(reader.plan.num_rows)
    batch = reader.batch(Key(1, 0, np.zeros_like(rows), rows))
    ids = batch["input_ids"].copy()
    used = batch["targets"] != IGNORE_INDEX
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
        reader = corpus_readers(toy_corpus, MaskedLM(masking).build(toy_tokenizer), max_length=24)[1]
        ranks = [ValidationRows(reader, batch_size, Share(r, world_size)) for r in range(world_size)]
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
        held = sum(int((part["targets"] != IGNORE_INDEX).sum()) for part in parts)
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
