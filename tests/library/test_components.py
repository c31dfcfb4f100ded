"""Components are what the stages use: the same files, and errors of one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from domainbert import (
    CorpusConfig,
    MultiLabelScores,
    Source,
    load_tokenizer,
    packed_loader,
    prepare_corpus,
    read_documents,
    train_tokenizer,
)
from domainbert.stages.prepare import prepare
from domainbert.stages.vocab import vocab
from tests.refusals import refused


@pytest.fixture
def corpus(folder: Path) -> CorpusConfig:
    return CorpusConfig([Source(str(folder / "corpus.txt"), documents="line")], validation_fraction=0.1)


def test_a_tokenizer_is_that_of_the_stage_in_any_order_of_texts(corpus: CorpusConfig, tmp_path: Path) -> None:
    facts = vocab(out=tmp_path, corpus=corpus, vocab_size=128)
    texts = [document.text for document in read_documents(corpus) if document.split == "train"]
    for order in (texts, iter(texts[::-1])):
        assert train_tokenizer(order, vocab_size=128).fingerprint == facts["fingerprint"]
    assert load_tokenizer(tmp_path).fingerprint == facts["fingerprint"]


@pytest.mark.parametrize("row_lengths", [None, [32]])
def test_a_prepared_corpus_is_that_of_the_stage(
    corpus: CorpusConfig, folder: Path, tmp_path: Path, row_lengths: list[int] | None
) -> None:
    how = {"row_lengths": row_lengths, "num_workers": 0}
    facts = prepare(out=tmp_path / "stage", corpus=corpus, tokenizer=folder / "model", **how)
    summary = prepare_corpus(corpus, load_tokenizer(folder / "model"), tmp_path / "library", row_lengths=row_lengths)
    assert summary.as_dict() == facts
    stage, library = (json.loads((tmp_path / name / "prepared.json").read_text()) for name in ("stage", "library"))
    assert stage == library


@pytest.mark.parametrize(
    ("arguments", "where", "problem", "expected"),
    [
        (("one text",), "texts", "found a single string", "an iterable of documents, such as a list"),
        ((["a", 1],), "texts[1]", "found int", "a string"),
        ((["a"], "wordpice"), "kind", "found 'wordpice'", "did you mean 'WordPiece..."),
        ((["a"], "wordpiece", "128"), "vocab_size", "found '128'", "an integer from 1 to..."),
        (([],), "...", "the corpus has no words", "text to train a vocabulary on"),
        ((["a b"], "wordpiece", 256), "...", "the corpus is too small for vocab_size 256: ......", "..."),
    ],
)
def test_texts_that_make_no_tokenizer_are_one_sentence(arguments: Any, where: str, problem: str, expected: str) -> None:
    with refused(where=where, problem=problem, expected=expected):
        train_tokenizer(*arguments)


def test_a_corpus_that_cannot_be_prepared_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    text = folder / "corpus.txt"
    whole = CorpusConfig([Source(str(text), documents="line")], validation_fraction=0)
    with refused(where="validation_fraction", found="0"):
        prepare_corpus(whole, folder / "model", tmp_path / "a")
    with refused(where="sources[0].path", found="'...nothing.txt', which neither exists..."):
        prepare_corpus(tmp_path / "nothing.txt", folder / "model", tmp_path / "b")
    with refused(found="no document for validation (1 for train..."):
        prepare_corpus(text, folder / "model", tmp_path / "c")  # the file is one document
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "prepared.json").touch()
    with refused(where="out", problem=f"{tmp_path / 'd'} contains a prepared corpus"):
        prepare_corpus([text], folder / "model", tmp_path / "d")


def test_packed_batches_hold_each_text_once_and_long_ones_in_windows(folder: Path) -> None:
    tokenizer = load_tokenizer(folder / "model")
    texts = ["the high court", *["the court heard the high case"] * 40, " ".join(["court"] * 50)]
    batches = list(packed_loader(texts, tokenizer, max_length=16, batch_tokens=64))
    assert sorted(number for batch in batches for number in batch["items"].tolist()) == list(range(42))
    assert len(batches) > 5 and max(batch["position_ids"].max() for batch in batches) == 15
    first_tokens = {int(number) for batch in batches for number in batch["input_ids"].flatten()[batch["positions"]]}
    assert first_tokens == {tokenizer.cls_id}
    windows = [int(batch["items"][example]) for batch in batches for example in batch["example"]]
    assert windows.count(41) > 3 and windows.count(0) == 1


def test_scores_take_tensors_of_16_bits() -> None:
    metric = MultiLabelScores(["a"])
    metric.update(torch.tensor([[0.5], [0.25]], dtype=torch.bfloat16), torch.tensor([[1], [0]]))
    assert float(metric.compute()["f1"]) == 1.0
