"""Pairs of segments against brute force, by hand, and against transformers."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from domainbert.base.errors import DomainbertError
from domainbert.corpus.documents import Document
from domainbert.corpus.report import CorpusReport
from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import IGNORE_INDEX
from domainbert.data.parallel_encoding import encode_documents
from domainbert.data.prepared import open_prepared
from domainbert.data.prepared_writer import PreparedWriter
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.electra.config import ElectraConfig
from domainbert.encoders.families import name_map
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.names import from_hugging_face, to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.encoders.roberta.config import RobertaConfig
from domainbert.models.loading import load_model
from domainbert.models.saving import save_model
from domainbert.pretraining.batches import PackedRowsReader, TrainRows, ValidationRows
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objective import InitialModels, Key, ValidationText
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.masked_lm.objective import MaskedLMObjective
from domainbert.pretraining.objectives.sentence_pairs.config import SentencePairs
from domainbert.pretraining.objectives.sentence_pairs.plan import PairPlan
from domainbert.pretraining.objectives.sentence_pairs.sentences import SentenceMarks
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.trainer import build_trainer
from tests.ready_made import ReadyBatches, ReadyPretraining
from tests.refusals import refused
from tests.tiny_training import Losses, cpu_training
from tests.toy_corpus import corpus_readers

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = BertConfig(32, 2, 2, 48, max_position_embeddings=40, initializer_range=0.1, **QUIET)
ALBERT = AlbertConfig(
    32, 2, 2, 48, embedding_size=16, max_position_embeddings=40, initializer_range=0.1, classifier_dropout_prob=0.0
)
ORDER, NEXT = SentencePairs(relation="order"), SentencePairs(relation="next")
LENGTH = 32
WORDS = ["banken", "zürich", "##s", "##ing", *(f"w{number}" for number in range(40))]
SIGNS = [".", "!", "?", '"', ")", "(", ",", "2", "5"]


@pytest.fixture(scope="module")
def tokenizer() -> DomainTokenizer:
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *SIGNS, *WORDS])}
    return DomainTokenizer(bert_backend(vocab, {}), model_max_length=64)


@pytest.fixture(scope="module")
def corpus(tokenizer: DomainTokenizer, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """150 documents of up to 14 sentences, some of a word or two; every seventh has no sentence that ends; one word in
    ten is [UNK], and every fifth document is for validation."""
    folder, tokenizer_folder = (tmp_path_factory.mktemp(name) for name in ("pairs", "tokenizer"))
    tokenizer.save(tokenizer_folder)
    draw = np.random.default_rng(0)
    words = [*WORDS[4:], "Zürichs", "bankening", "2.5", *["unheard"] * 5]

    def text(number: int) -> str:
        end = "" if number % 7 == 0 else "."
        sizes = [1] if number % 11 == 0 else 1 + draw.integers(12, size=1 + draw.integers(14))
        return " ".join(" ".join(draw.choice(words, size=size)) + end for size in sizes)

    documents = [
        Document(id=f"d{number}", text=text(number), split="train" if number % 5 else "validation")
        for number in range(150)
    ]
    writer = PreparedWriter(folder, load_tokenizer(tokenizer_folder))
    for batch in encode_documents(documents, load_tokenizer(tokenizer_folder), 0):
        writer.write(batch)
    writer.close(CorpusReport())
    return open_prepared([folder])


@pytest.fixture
def made(corpus: PreparedCorpus, tokenizer: DomainTokenizer) -> Any:
    """Rows and the model, for settings and an encoder; the same for every call."""

    def make(settings: SentencePairs, encoder: EncoderConfig = BERT) -> tuple[PackedRowsReader, EncoderWithHead]:
        objective = settings.build(tokenizer)
        train, _ = corpus_readers(corpus, objective, LENGTH)
        torch.manual_seed(0)
        return train, objective.build(InitialModels(tokenizer, encoder, None))["model"].model

    return make


def whole(plan: PairPlan, epoch: int, seed: int = 3) -> Key:
    rows = np.arange(plan.num_rows)
    return Key(seed, 0, np.full_like(rows, epoch), rows)


def tensors(batch: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


def batch_of(reader: PackedRowsReader, count: int = 8, seed: int = 3) -> dict[str, np.ndarray]:
    rows = np.arange(count)
    return reader.batch(Key(seed, 0, np.zeros_like(rows), rows))


# where a sentence begins


def test_a_sentence_begins_behind_its_end_and_closing_signs(tokenizer: DomainTokenizer) -> None:
    text = 'w1 w2 . w3 ! ) w4 ? " ) w5 . " ) " w6 w7 2 . 5 w8 5 . w9 . . . ( w10 , w11 . zürichs'
    tokens = text.replace("zürichs", "zürich ##s").split()
    ids = np.asarray([tokenizer.tokens.index(token) for token in tokens])
    found = SentenceMarks.of(tokenizer).starts(ids)
    assert [token for token, begins in zip(tokens, found, strict=True) if begins] == [
        "w3",
        "w4",
        "w5",
        "w9",
        "(",
        "zürich",
    ]
    assert not SentenceMarks.of(tokenizer).starts(ids[:2]).any()


class Entries:
    """A cased vocabulary whose entries say whether a space preceded them."""

    tokens = ("_Rates", "_fell", ".", "_Then", "_they", "rose", ").", "\u3002", "\u94f6", "_[UNK]")
    special_ids, unk_id = frozenset([9]), 9

    @property
    def pieces(self) -> Any:
        return SimpleNamespace(
            surface=lambda token: SimpleNamespace(text=token.removeprefix("_"), starts_word=token.startswith("_")),
            fold=lambda text: text,
        )


def test_spaces_and_case_are_read_where_the_vocabulary_has_them() -> None:
    marks = SentenceMarks.of(Entries())  # type: ignore[arg-type]
    names = ["_Rates", "_fell", ").", "_Then", ".", "_they", ".", "rose", ".", "_[UNK]", "\u3002", "\u94f6"]
    ids = np.asarray([Entries.tokens.index(name) for name in names])
    assert [names[place] for place in np.flatnonzero(marks.starts(ids))] == ["_Then", "_[UNK]", "\u94f6"]


# the plan


@pytest.mark.parametrize("settings", [ORDER, NEXT], ids=lambda one: one.relation)
def test_every_token_is_read_once_a_pass(made: Any, corpus: PreparedCorpus, settings: SentencePairs) -> None:
    """Of `next` some ends of second segments are left out: all together fewer than a row has tokens."""
    plan = made(settings)[0].plan
    for epoch in range(4):
        texts = plan.texts(whole(plan, epoch))
        read = np.zeros(corpus.train.num_tokens, dtype=np.int64)
        for start, stop in [*texts.first.tolist(), *texts.second.tolist()]:
            read[start:stop] += 1
        assert read.max() == 1 and (read == 0).sum() < (LENGTH if settings.relation == "next" else 1)
        begins = np.minimum(texts.first, texts.second)[:, 0] if settings.relation == "order" else texts.first[:, 0]
        assert np.array_equal(np.sort(begins), np.sort(plan.starts)), "a first segment begins each piece"


def possible_cuts(corpus: PreparedCorpus, tokenizer: DomainTokenizer, start: int, stop: int) -> tuple[list[int], bool]:
    """By hand: where a piece may be cut, and whether these are beginnings of sentences."""
    margin = max(math.ceil((stop - start) / 8), 2)
    middle = range(start + margin, stop - margin + 1)
    tokens = [tokenizer.tokens[number] for number in corpus.train.take(0, corpus.train.num_tokens)]
    sentences = [p for p in middle if tokens[p - 1] == "." and not {tokens[p - 2], tokens[p]} <= {"2", "5"}]
    words = [place for place in middle if not tokens[place].startswith("##")]
    nearest = sorted(words, key=lambda place: abs(2 * place - start - stop))[:8]
    return (sentences, True) if sentences else (nearest, False)


def test_cuts_stand_at_sentences_or_near_the_middle_and_are_drawn_anew(
    made: Any, corpus: PreparedCorpus, tokenizer: DomainTokenizer
) -> None:
    plan = made(NEXT)[0].plan
    drawn = np.stack([plan.halves(3, epoch).cuts for epoch in range(40)])
    found = {"sentences": 0, "words": 0, "single": 0}
    for piece, (start, length) in enumerate(zip(plan.starts.tolist(), plan.lengths.tolist(), strict=True)):
        wanted, at_sentences = possible_cuts(corpus, tokenizer, start, start + length)
        assert set(drawn[:, piece].tolist()) <= set(wanted or [start + length])
        if 1 < len(wanted) < 5:
            assert set(drawn[:, piece].tolist()) == set(wanted)
        found["single" if not wanted else "sentences" if at_sentences else "words"] += 1
    assert min(found.values()) > 5
    assert (plan.num_pairs, plan.at_sentences) == (found["sentences"] + found["words"], found["sentences"])
    assert plan.summary.endswith(
        f"; {plan.num_pairs} pairs, {found['words']} of them cut between words where no sentence begins; "
        f"{found['single']} texts are too short for a pair"
    )


def test_half_of_the_pairs_are_swapped(made: Any) -> None:
    plan = made(ORDER)[0].plan
    swapped, count = 0, 0
    for epoch in range(20):
        texts = plan.texts(whole(plan, epoch))
        for (a, b), (c, d), label in zip(texts.first.tolist(), texts.second.tolist(), texts.labels, strict=True):
            assert (label == IGNORE_INDEX) == (c == d)
            if label != IGNORE_INDEX:
                assert (b == c, d == a) == ((False, True) if label else (True, False)), "neighbours, in this order"
        swapped, count = swapped + (texts.labels == 1).sum(), count + (texts.labels != IGNORE_INDEX).sum()
    assert count == 20 * plan.num_pairs and swapped == 20 * (plan.num_pairs // 2)
    labels = np.stack([plan.halves(3, epoch).labels for epoch in range(20)])
    often = (labels == 1).sum(axis=0)[plan.num_cuts > 0]  # binomial, but for a little
    assert often.std() == pytest.approx(math.sqrt(5), rel=0.2) and often.min() > 1


def test_half_of_the_pairs_have_the_second_segment_of_another_document(made: Any, corpus: PreparedCorpus) -> None:
    plan = made(NEXT)[0].plan
    document = np.repeat(np.arange(corpus.train.num_documents), corpus.train.lengths)
    apart, count, willing = 0, 0, 0
    for epoch in range(20):
        texts = plan.texts(whole(plan, epoch))
        halves = plan.halves(3, epoch)
        assert np.array_equal(halves.partners[halves.partners], np.arange(len(plan.lengths))), "exchanged in couples"
        for (a, b), (c, d), label in zip(texts.first.tolist(), texts.second.tolist(), texts.labels, strict=True):
            if label == 1:
                assert document[c] != document[a] and d > c and b > a
            elif label == 0:
                assert b == c and document[d - 1] == document[a]
        apart, count = apart + (texts.labels == 1).sum(), count + (texts.labels != IGNORE_INDEX).sum()
        own = plan.starts + plan.lengths - halves.cuts
        exchanged = np.flatnonzero(halves.labels == 1)
        assert np.abs(own - own[halves.partners])[exchanged].mean() < 1, "of about the same length"
        willing += len(exchanged)
    assert apart == willing and 0 <= 20 * (plan.num_pairs // 2) - apart < 0.02 * count  # couples of one document


@pytest.mark.parametrize("settings", [ORDER, NEXT])
def test_the_documents_of_second_segments_are_named(made: Any, corpus: PreparedCorpus, settings: SentencePairs) -> None:
    reader = made(settings)[0]
    document = np.repeat(np.arange(corpus.train.num_documents), corpus.train.lengths)
    more = 0
    for rows in ([0], [3, 1], [7, 2, 5]):
        key = Key(3, 0, np.arange(len(rows)), np.asarray(rows))
        texts = reader.plan.texts(key)
        stretches = [(a, b) for a, b in [*texts.first.tolist(), *texts.second.tolist()] if b > a]
        wanted = {number for a, b in stretches for number in document[a:b].tolist()}
        assert reader.describe(key) == {"rows": rows, "documents": sorted(wanted)}
        more += len(wanted) - len(set(reader.plan.documents[reader.plan.pieces_of(key.rows)].tolist()))
    assert (more > 0) == (settings is NEXT)


def test_one_document_has_no_other_one(tokenizer: DomainTokenizer) -> None:
    ids = np.arange(14, 54)  # no signs

    class Alone:
        num_documents, num_tokens, languages = 1, 40, None
        document_offsets = np.asarray([0, 40])
        row_plan = PreparedSplit.row_plan

        def take(self, start: int, stop: int) -> np.ndarray:
            return ids[start:stop]

        def take_starts(self, start: int, stop: int) -> np.ndarray:
            return np.ones(stop - start, dtype=bool)

    with refused(where="prepared", problem="a split has too little text"):
        NEXT.build(tokenizer).layout_rows(Alone(), LENGTH)
    plan = ORDER.build(tokenizer).layout_rows(Alone(), LENGTH)
    assert plan.num_pairs == 2 and plan.at_sentences == 0
    Alone.num_documents, Alone.document_offsets = 2, np.asarray([0, 20, 40])
    assert NEXT.build(tokenizer).layout_rows(Alone(), LENGTH).num_pairs == 2, "two documents are enough"


# rows


@pytest.mark.parametrize("settings", [ORDER, NEXT], ids=lambda one: one.relation)
def test_a_pair_is_one_text_with_two_types(
    made: Any, corpus: PreparedCorpus, tokenizer: DomainTokenizer, settings: SentencePairs
) -> None:
    reader = made(settings)[0]
    key = whole(reader.plan, 1)
    rows, texts = reader.objective.read(reader.split, reader.plan, key), reader.plan.texts(key)
    packed, split = rows.packed, corpus.train
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    for row in range(reader.plan.num_rows):
        ids, types, positions, segments, starts = [], [], [], [], []
        begins, labels = [], []
        for number, text in enumerate(np.flatnonzero(texts.rows == row), 1):
            (a, b), (c, d) = texts.first[text], texts.second[text]
            one = [cls, *split.take(a, b), sep]
            two = [*split.take(c, d), sep] if d > c else []
            if two:
                begins.append(row * LENGTH + len(ids))
                labels.append(texts.labels[text])
                starts += [False, *split.take_starts(a, b), False, *split.take_starts(c, d), False]
            else:
                starts += [False, *split.take_starts(a, b), False]
            types += [0] * len(one) + [1] * len(two)
            positions += range(len(one) + len(two))
            segments += [number] * (len(one) + len(two))
            ids += one + two
        rest = LENGTH - len(ids)
        assert rest >= 0
        assert packed.input_ids[row].tolist() == ids + [pad] * rest
        assert packed.token_type_ids[row].tolist() == types + [0] * rest
        assert packed.position_ids[row].tolist() == positions + [0] * rest
        assert packed.segment_ids[row].tolist() == segments + [0] * rest
        assert rows.starts_word[row].tolist() == starts + [False] * rest
        free = reader.plan.max_pairs - len(begins)
        assert packed.pairs[row].tolist() == begins + [row * LENGTH] * free
        assert packed.labels[row].tolist() == labels + [IGNORE_INDEX] * free


@pytest.mark.parametrize("settings", [ORDER, SentencePairs(MaskingConfig(whole_word=True), relation="next")])
def test_counts_of_a_global_batch_are_exact_and_parts_make_it_up(made: Any, settings: SentencePairs) -> None:
    """Also where it spans the end of a pass, and exchanged segments have other numbers of [UNK]."""
    reader = made(settings)[0]
    size = reader.plan.num_rows
    order = GlobalOrder(size, 16, seed=5)
    again: PackedRowsReader = pickle.loads(pickle.dumps(reader))  # as a process that makes batches gets it
    spanned = 0
    for step in range(2 * size // 16):
        batch = TrainRows(reader, order, Share(), range(step, step + 1))[0]
        assert batch["num_targets"] == (batch["targets"] != IGNORE_INDEX).sum() > 0
        assert batch["num_pairs"] == (batch["labels"] != IGNORE_INDEX).sum() > 0
        spanned += len(np.unique(order.batch(step)[0])) - 1
        for ranks in (2, 4):
            parts = [TrainRows(again, order, Share(rank, ranks), range(step, step + 1))[0] for rank in range(ranks)]
            for name in ("input_ids", "token_type_ids", "position_ids"):
                assert np.array_equal(np.stack([p[name] for p in parts], axis=1).reshape(16, -1), batch[name])
            for name in ("targets", "labels"):
                mixed = np.stack([p[name].reshape(16 // ranks, -1) for p in parts], axis=1)
                assert np.array_equal(mixed.reshape(batch[name].shape), batch[name])
            assert {p["num_targets"] for p in parts} == {batch["num_targets"]}
    assert spanned >= 1


def test_masks_are_those_of_masked_lm_on_the_same_rows(made: Any, tokenizer: DomainTokenizer) -> None:
    reader = made(NEXT)[0]
    key = whole(reader.plan, 2)
    rows = reader.objective.read(reader.split, reader.plan, key)
    wanted = MaskedLM().build(tokenizer).corrupt(rows, key)
    found = reader.objective.corrupt(rows, key)
    assert all(np.array_equal(found[name], value) for name, value in wanted.items())
    maskable = ~np.isin(rows.packed.input_ids, sorted(tokenizer.special_ids))
    wanted_counts = np.maximum(np.rint(0.15 * maskable.sum(axis=1)), np.minimum(maskable.sum(axis=1), 1))
    assert np.array_equal((found["targets"] != IGNORE_INDEX).reshape(len(maskable), -1).sum(axis=1), wanted_counts)
    assert (rows.packed.input_ids == tokenizer.unk_id).sum() > 50


def test_notes_say_what_a_pair_is(made: Any) -> None:
    for settings, said in ((ORDER, "swapped (1)"), (NEXT, "the second segment is of another document (1)")):
        reader = made(settings)[0]
        key = whole(reader.plan, 0)
        rows = reader.objective.read(reader.split, reader.plan, key)
        notes = reader.objective.notes(rows, reader.objective.corrupt(rows, key))
        texts = reader.plan.texts(key)
        flat = [note for row in notes for note in row]
        assert flat.count(said) == (texts.labels == 1).sum()
        assert {flat[place] for place in rows.packed.pairs[rows.packed.labels == 1]} == {said}


# losses


class Said(nn.Module):
    """A model that returns the given logits."""

    def __init__(self, entries: Tensor, pairs: Tensor) -> None:
        super().__init__()
        self.entries, self.pairs = entries, pairs

    def forward(self, tokens: Packed, positions: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        return self.entries[positions], self.pairs[pairs]


def test_losses_and_counts_are_those_of_the_formulas(made: Any, tokenizer: DomainTokenizer) -> None:
    reader = made(ORDER)[0]
    batch = tensors(batch_of(reader))
    size, generator = batch["input_ids"].numel(), torch.Generator().manual_seed(1)
    entries = torch.randn(size, tokenizer.vocab_size, generator=generator)
    pairs = torch.randn(size, 2, generator=generator)
    found = reader.objective.measure({"model": Said(entries, pairs)}, batch)
    odds, target = entries.double().log_softmax(-1), batch["targets"]
    used = target != IGNORE_INDEX
    real = batch["labels"] != IGNORE_INDEX
    label, answers = batch["labels"][real], pairs.double()[batch["pairs"][real]]
    wanted = {
        "masked_lm": -odds[batch["positions"][used], target[used]].sum(),
        "targets": used.sum(),
        "pairs": -answers.log_softmax(-1)[torch.arange(len(label)), label].sum(),
        "num_pairs": real.sum(),
        "correct": sum((b > a) == bool(one) for (a, b), one in zip(answers.tolist(), label.tolist(), strict=True)),
        "num_label_1": label.sum(),
    }
    values = {name: float(value) for name, value in found.items()}
    assert values == pytest.approx({name: float(value) for name, value in wanted.items()}, rel=1e-5)
    assert values.keys() == set(reader.objective.measured) and 0 < values["num_label_1"] < values["num_pairs"]
    losses = reader.objective.losses({"model": Said(entries, pairs)}, batch)
    assert {name: float(value) for name, value in losses.items()} == {name: values[name] for name in losses}
    assert {name: term.weight for name, term in reader.objective.terms.items()} == dict.fromkeys(losses, 1.0)
    on_meta = {name: value.to("meta") for name, value in batch.items()}
    said = reader.objective.measure({"model": Said(entries.to("meta"), pairs.to("meta"))}, on_meta)
    assert all(value.shape == () for value in said.values()), "no number is waited for"


def test_report_adds_both_losses_and_tells_the_base_rate(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = made(ORDER)[0].objective
    sums = {"masked_lm": 30.0, "targets": 15, "pairs": 6.0, "num_pairs": 10, "correct": 7, "num_label_1": 5}
    given = {name: torch.tensor(value) for name, value in sums.items()}
    found = objective.report(given, ValidationText("", 0.2, {"unigram_entropy": 3.0}))
    assert found == pytest.approx(
        {
            "loss": 2.6,
            "masked_lm_loss": 2.0,
            "bits_per_character": 2.0 / math.log(2) * 0.2,
            "perplexity": math.exp(2),
            "unigram_entropy": 3.0,
            "pair_loss": 0.6,
            "pair_accuracy": 0.7,
            "base_rate_entropy": math.log(2),
        }
    )
    assert (
        "0.6000 nats, 0.6931 for a guess from the shares of the labels; accuracy 0.7000"
        in objective.card_facts(found)["pairs"]
    )
    assert objective.card_facts(found)["validation loss"].startswith("2.0000 nats")
    monkeypatch.setattr(MaskedLMObjective, "judge", lambda *_: ({"loss_without_context": 2.5}, []))
    facts, learned = objective.judge(None, found | {"pair_loss": 0.95 * math.log(2) - 1e-6})
    assert (facts, learned) == ({"loss_without_context": 2.5}, [])
    (said,) = objective.judge(None, found | {"pair_loss": 0.6901})[1]
    assert said.startswith("the loss on pairs is 0.6901, but a constant prediction reaches 0.6931")


def test_validation_is_the_same_whatever_is_hidden_in_training(tokenizer: DomainTokenizer) -> None:
    odd = SentencePairs(MaskingConfig(0.4, whole_word=True), relation="next").build(tokenizer)
    assert odd.for_validation().config == NEXT


def test_losses_are_means_over_the_global_batch(made: Any, monkeypatch: Any) -> None:
    """However the rows are spread over ranks and micro-batches."""

    def gradients(world_size: int, accumulation: int) -> list[Tensor]:
        reader, model = made(NEXT)
        how = OptimConfig(), ScheduleConfig(), [ValidationText("", 1.0, {})]
        module = ReadyPretraining(reader.objective, {"model": model}, *how)
        module.trainer = SimpleNamespace(world_size=world_size, accumulate_grad_batches=accumulation)
        order = GlobalOrder(reader.plan.num_rows, 8, seed=0)
        for rank in range(world_size):
            batches = TrainRows(reader, order, Share(rank, world_size, accumulation), range(1, 10))
            for number in range(accumulation):
                (module.training_step(tensors(batches[number]), number) / accumulation / world_size).backward()
        return [parameter.grad for parameter in module.parameters()]

    monkeypatch.setattr(Pretraining, "log", lambda *_, **__: None)
    wanted = gradients(1, 1)
    reader, model = made(NEXT)
    sums = reader.objective.measure(
        {"model": model}, tensors(TrainRows(reader, GlobalOrder(reader.plan.num_rows, 8, 0), Share(), range(1, 2))[0])
    )
    (sums["masked_lm"] / sums["targets"] + sums["pairs"] / sums["num_pairs"]).backward()
    for one, parameter in zip(wanted, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, atol=1e-6, rtol=1e-4)
    for world_size, accumulation in ((1, 4), (2, 1), (4, 2)):
        for one, other in zip(gradients(world_size, accumulation), wanted, strict=True):
            torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-4)


GOLDEN: dict[str, Any] = {
    "next": {
        "train": [4.83738, 5.03884, 5.22423, 4.53437, 4.90953, 4.73346, 4.44848, 4.27169, 4.35264, 4.66323],
        "validation": {"loss": 4.51232, "masked_lm_loss": 3.78734, "pair_loss": 0.72497, "pair_accuracy": 0.51613},
    },
    "order": {
        "train": [4.85508, 4.76267, 5.00834, 4.60677, 4.84468, 4.65065, 4.73817, 4.53163, 4.49726, 4.47761],
        "validation": {"loss": 4.53017, "masked_lm_loss": 3.8211, "pair_loss": 0.70907, "pair_accuracy": 0.5},
    },
}


@pytest.mark.parametrize(("settings", "encoder"), [(NEXT, BERT), (ORDER, ALBERT)], ids=["next", "order"])
def test_golden_loss_curves(made: Any, corpus: Any, tmp_path: Path, settings: SentencePairs, encoder: Any) -> None:
    """Ten steps in fp32 on one thread, without dropout; what moves them is another mask, cut, order or step."""
    reader, model = made(settings, encoder)
    held = PackedRowsReader(corpus.validation, reader.objective.for_validation(), LENGTH)
    how = OptimConfig(lr=1e-2), ScheduleConfig(warmup_steps=2), [ValidationText("", 0.5, {})]
    module = ReadyPretraining(reader.objective, {"model": model}, *how)
    losses = Losses()
    trainer = build_trainer(cpu_training(), tmp_path, 10, 8, 10, [losses])
    order = GlobalOrder(reader.plan.num_rows, 8, seed=0)
    train = lambda share, steps: TrainRows(reader, order, share, steps)  # noqa: E731
    validation = lambda share: ValidationRows(held, 8, share)  # noqa: E731
    trainer.fit(module, datamodule=ReadyBatches(train, [validation], 10))
    wanted = GOLDEN[settings.relation]
    found = {name.removeprefix("validation/"): float(value) for name, value in trainer.callback_metrics.items()}
    assert losses.values == pytest.approx(wanted["train"], rel=1e-4)
    assert {name: found[name] for name in wanted["validation"]} == pytest.approx(wanted["validation"], rel=1e-3)


def test_the_order_of_segments_is_learnt(made: Any) -> None:
    """On rows it sees again and again."""
    reader, model = made(ORDER)
    batch = tensors(batch_of(reader))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        losses = reader.objective.losses({"model": model}, batch)
        sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
    found = reader.objective.measure({"model": model}, batch)
    assert int(found["correct"]) == int(found["num_pairs"]) > 5


# families and transformers


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        (
            RobertaConfig(32, 2, 2, 48),
            "found SentencePairs with RobertaConfig, which has no head for pairs; expected BertConfig",
        ),
        (ElectraConfig(32, 2, 2, 48), "ElectraConfig, which has no head for pairs"),
        (
            dataclasses.replace(BERT, type_vocab_size=1),
            "BertConfig of type_vocab_size: 1; expected type_vocab_size: 2 or more",
        ),
    ],
)
def test_encoders_that_cannot_tell_segments_apart_are_refused(
    tokenizer: DomainTokenizer, encoder: EncoderConfig, said: str
) -> None:
    with pytest.raises(DomainbertError, match=said):
        ORDER.check(encoder)
    with pytest.raises(DomainbertError, match=said):
        NEXT.build(tokenizer).build(InitialModels(tokenizer, encoder, None))


@pytest.mark.parametrize(
    ("encoder", "kind"),
    [(BERT, "Bert"), (ALBERT, "Albert"), (dataclasses.replace(ALBERT, num_hidden_groups=2), "Albert")],
)
def test_a_step_has_the_logits_and_gradients_of_transformers(
    made: Any, tokenizer: DomainTokenizer, encoder: EncoderConfig, kind: str
) -> None:
    """On the first text of each row, in double precision, every parameter by its name."""
    reader, _ = made(ORDER, encoder)
    torch.manual_seed(1)
    their_config = getattr(transformers, f"{kind}Config")(
        vocab_size=tokenizer.vocab_size, **dataclasses.asdict(encoder)
    )
    theirs = getattr(transformers, f"{kind}ForPreTraining")(their_config).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    names = name_map(encoder, "pretraining")
    model = made(ORDER, encoder)[1].double().eval()
    state = theirs.state_dict()
    model.load_state_dict({ours: torch.cat([state[name] for name in them]) for ours, them in names.items()})
    assert from_hugging_face(state, names)[1] == []

    batch = tensors(batch_of(reader))
    single = (batch["segment_ids"] == 1).long()
    first = single.flatten()[batch["positions"]] == 1
    begins = batch["pairs"] % LENGTH == 0
    judged = begins & (batch["labels"] != IGNORE_INDEX)
    alone = batch | {
        "segment_ids": single,
        "targets": batch["targets"].masked_fill(~first, IGNORE_INDEX),
        "labels": batch["labels"].masked_fill(~judged, IGNORE_INDEX),
    }
    found = reader.objective.losses({"model": model}, alone)
    used = alone["targets"] != IGNORE_INDEX
    labels = torch.full((single.numel(),), IGNORE_INDEX).scatter(0, batch["positions"][used], alone["targets"][used])
    rows = (batch["pairs"] // LENGTH)[judged]
    answers = torch.full((len(single),), IGNORE_INDEX).scatter(0, rows, batch["labels"][judged])
    assert len(set(rows.tolist())) == len(rows) > 4 and set(batch["labels"][judged].tolist()) == {0, 1}
    said = theirs(batch["input_ids"], attention_mask=single, token_type_ids=batch["token_type_ids"])
    cross_entropy = nn.CrossEntropyLoss(reduction="sum")
    wanted = {
        "masked_lm": cross_entropy(said.prediction_logits.flatten(0, 1), labels),
        "pairs": cross_entropy(said[1], answers),  # `sop_logits`, or `seq_relationship_logits`
    }
    for name, loss in wanted.items():
        torch.testing.assert_close(found[name].double(), loss, atol=1e-3, rtol=1e-6)  # the loss is of fp32
    sum(found.values()).backward()
    sum(wanted.values()).backward()
    copies = theirs._tied_weights_keys
    theirs_by_name = {n: p.grad for n, p in theirs.named_parameters(remove_duplicate=False) if n not in copies}
    ours = to_hugging_face({name: parameter.grad for name, parameter in model.named_parameters()}, names)
    assert ours.keys() == theirs_by_name.keys()
    for name, gradient in theirs_by_name.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-4, rtol=1e-4, msg=name)
        assert gradient.abs().max() > 1e-3 or name.endswith("key.bias"), name


@pytest.mark.parametrize(("encoder", "kind"), [(BERT, "Bert"), (ALBERT, "Albert")])
def test_the_folder_is_theirs_and_comes_back(
    made: Any, tokenizer: DomainTokenizer, tmp_path: Path, encoder: EncoderConfig, kind: str, capsys: Any
) -> None:
    _, model = made(ORDER, encoder)
    with torch.no_grad():
        for parameter in model.eval().parameters():
            parameter.normal_(0, 0.2)
    save_model(tmp_path, model, encoder, tokenizer, "pretraining", "card")
    theirs, said = getattr(transformers, f"{kind}ForPreTraining").from_pretrained(tmp_path, output_loading_info=True)
    assert not any(said[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(transformers.AutoModelForPreTraining.from_pretrained(tmp_path)) is type(theirs)
    ids, types = torch.arange(5, 25).view(1, -1), torch.tensor([[0] * 9 + [1] * 11])
    tokens = Packed(ids, torch.arange(20).view(1, -1), torch.ones_like(ids), types)
    with torch.inference_mode():
        entries, pairs = model(tokens, torch.arange(20), torch.tensor([0]))
        wanted = theirs.eval()(ids, token_type_ids=types)
        torch.testing.assert_close(entries, wanted.prediction_logits[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(pairs, wanted[1], atol=1e-5, rtol=1e-4)
        assert torch.equal(model(tokens, torch.arange(20)), entries)
    again, folder, made_anew = load_model(tmp_path, "pretraining")
    assert (folder.head, folder.labels, made_anew) == ("pretraining", (), [])
    assert all(torch.equal(one, again.state_dict()[name]) for name, one in model.state_dict().items())
    assert capsys.readouterr().out == ""


def test_dropout_before_the_answer_is_albert_s_and_differs_from_pair_to_pair(tokenizer: DomainTokenizer) -> None:
    encoder = dataclasses.replace(ALBERT, classifier_dropout_prob=0.4)
    assert (
        ORDER.build(tokenizer).build(InitialModels(tokenizer, encoder, None))["model"].model.head.pair_dropout.rate
        == 0.4
    )
    noisy = dataclasses.replace(BERT, hidden_dropout_prob=0.3)
    assert (
        ORDER.build(tokenizer).build(InitialModels(tokenizer, noisy, None))["model"].model.head.pair_dropout.rate == 0
    )
