"""Translation LM: a text and its translation are one text of a row, and tokens of both are hidden."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.data.prepared import open_prepared
from domainbert.pretraining.batches import PackedRowsReader
from domainbert.pretraining.objective import CorpusRows, Key
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.sentence_pairs.config import SentencePairs
from domainbert.stages.prepare import prepare
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.tokenization.special_tokens import bert_template, roberta_template
from tests.refusals import refused

LENGTH = 32


@pytest.fixture(scope="module", params=[bert_template, roberta_template])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames pairs as `[CLS] A [SEP] B [SEP]`, or as `[CLS] A [SEP][SEP] B [SEP]`."""
    words = [f"{name}{number}" for name in ("en", "fr") for number in range(20)] + ["ete", "##s"]
    vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *words])}
    backend = bert_backend(vocab, {})
    backend.post_processor = request.param(vocab["[CLS]"], vocab["[SEP]"]).processor(list(vocab))
    folder = tmp_path_factory.mktemp("tokenizer")
    DomainTokenizer(backend, model_max_length=64).save(folder)
    return folder


def pairs(count: int) -> list[tuple[str, str]]:
    draw = random.Random(0)

    def side(name: str) -> str:
        return " ".join([f"{name}{draw.randrange(20)}" for _ in range(draw.randint(3, 10))] + ["\u00e9t\u00e9s"])

    return [(side("en"), side("fr")) for _ in range(count)]


@pytest.fixture(scope="module")
def prepared(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, and as many texts alone behind them."""
    folder = tmp_path_factory.mktemp("prepared")
    lines = [json.dumps({"text": text, "translation": other}) for text, other in pairs(80)]
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    (folder / "alone.txt").write_text("\n".join(f"{text} {other}" for text, other in pairs(80)), encoding="utf-8")
    sources = [
        Source(str(folder / "pairs.jsonl"), translation_key="translation"),
        Source(str(folder / "alone.txt"), documents="line"),
    ]
    config = CorpusConfig(sources, min_characters=1, validation_fraction=0.2)
    made = [folder / f"{workers} workers" for workers in (0, 1)]
    for workers, out in enumerate(made):
        prepare(out, corpus=config, tokenizer=tokenizer, num_workers=workers)
    assert (made[0] / "prepared.json").read_bytes() == (made[1] / "prepared.json").read_bytes()
    return made[0]


@pytest.fixture(scope="module")
def reader(prepared: Path) -> PackedRowsReader:
    corpus = open_prepared([prepared])
    return PackedRowsReader(corpus.train, MaskedLM().build(load_tokenizer(corpus.tokenizer_folder)), LENGTH)


def read(reader: PackedRowsReader, epoch: int = 0) -> tuple[CorpusRows, Key]:
    """All rows."""
    rows = np.arange(reader.plan.num_rows)
    key = Key(3, 0, np.full_like(rows, epoch), rows)
    return reader.objective.read(reader.split, reader.plan, key), key


def texts_of(reader: PackedRowsReader) -> list[list[int]]:
    """The ids of all texts of all rows, with the special tokens around them."""
    packed = read(reader)[0].packed
    return [
        ids[numbers == number].tolist()
        for ids, numbers in zip(packed.input_ids, packed.segment_ids, strict=True)
        for number in range(1, int(numbers.max()) + 1)
    ]


def test_a_pair_stands_in_a_row_as_the_tokenizer_frames_it(reader: PackedRowsReader) -> None:
    tokenizer = reader.objective.tokenizer
    framed = [tokenizer.template.frame(*tokenizer.encode(list(pair)))[0].tolist() for pair in pairs(80)]
    alone = [tokenizer.template.frame(*tokenizer.encode([" ".join(pair)]))[0].tolist() for pair in pairs(80)]
    found = texts_of(reader)
    assert len(found) == reader.split.num_documents > 100
    assert all(one in framed or one in alone for one in found)
    assert sum(one in framed for one in found) > 50 and sum(one in alone for one in found) > 50


def test_sentence_pairs_cut_no_text_from_its_translation(reader: PackedRowsReader) -> None:
    """A segment that began with a separator would give away that it was swapped."""
    objective = SentencePairs(relation="order").build(reader.objective.tokenizer)
    with refused(where="prepared", problem="the corpus has pairs of a text and its translation..."):
        objective.layout_rows(reader.split, LENGTH)


def test_tokens_of_both_sides_are_hidden_and_nothing_between_them(reader: PackedRowsReader) -> None:
    """Exactly 15 % of the word tokens of a row; tokens of A and B are equally likely to be hidden."""
    objective, tokenizer = reader.objective, reader.objective.tokenizer
    hidden = dict.fromkeys(("en", "fr"), 0)
    for epoch in range(20):
        written, key = read(reader, epoch)
        batch = objective.corrupt(written, key)
        targets = [token for token in batch["targets"].tolist() if token >= 0]
        assert not set(targets) & set(tokenizer.special_ids)
        assert len(targets) == objective.counts(reader.plan, key)["num_targets"]
        special = np.isin(written.packed.input_ids, list(tokenizer.special_ids))
        assert np.array_equal(batch["input_ids"][special], written.packed.input_ids[special])
        for name in hidden:
            hidden[name] += sum(tokenizer.tokens[target].startswith(name) for target in targets)
    counts = {
        name: sum(tokenizer.tokens[t].startswith(name) for one in texts_of(reader) for t in one) for name in hidden
    }
    assert {name: hidden[name] / 20 / counts[name] for name in hidden} == pytest.approx(
        {"en": 0.15, "fr": 0.15}, abs=0.015
    )


def test_positions_run_through_a_pair(reader: PackedRowsReader) -> None:
    packed = read(reader)[0].packed
    assert len(reader.objective.tokenizer.template.separators) in (1, 2)
    for positions, numbers in zip(packed.position_ids, packed.segment_ids, strict=True):
        for number in range(1, int(numbers.max()) + 1):
            assert positions[numbers == number].tolist() == list(range(int((numbers == number).sum())))
