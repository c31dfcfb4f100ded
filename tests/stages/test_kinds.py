"""Kinds of vocabulary through the stages: byte-level BPE and Unigram end to end, and a kind of a user's own package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from domainbert.cli import main
from domainbert.data.prepared import open_prepared
from domainbert.tokenization.load import load_tokenizer

RECIPE = """
out: {out}
stages:
  sample: {{corpus_documents: 120, train_sentences: 40, validation_sentences: 20, test_sentences: 30}}
  wordpiece:
    stage: vocab
    corpus: &corpus {{sources: ["@sample/corpus.jsonl"], validation_fraction: 0.1}}
    vocab_size: 448
  vocab: {{kind: {kind}, corpus: *corpus, vocab_size: 512, compare_with: "@wordpiece"}}
  prepare: {{corpus: *corpus, tokenizer: "@vocab", num_workers: 0}}
  pretrain:
    prepared: ["@prepare"]
    encoder: &encoder
      class_path: BertConfig
      init_args:
        hidden_size: 32
        num_hidden_layers: 1
        num_attention_heads: 2
        intermediate_size: 64
        max_position_embeddings: 48
    masking: {{whole_word: true}}
    max_length: 48
    batch_size: 8
    budget: {{max_steps: 3}}
    precision: 32-true
    trainer: &cpu {{accelerator: cpu, devices: 1}}
  to-wordpiece: {{stage: transfer, model: "@pretrain", tokenizer: "@wordpiece", corpus: *corpus}}
  and-back: {{stage: transfer, model: "@to-wordpiece", tokenizer: "@vocab", corpus: *corpus}}
  more: {{stage: transfer, model: "@pretrain", extend: 9, corpus: *corpus}}
  finetune:
    model: "@more"
    task: Ner
    train: "@sample/ner/train.conll"
    validation: "@sample/ner/validation.conll"
    max_epochs: 1
    seeds: [1]
    precision: 32-true
    trainer: *cpu
  predict: {{model: "@finetune/seed-1", input: {texts}}}
"""
_TEXTS = [
    "",
    " \n",
    "Cafe\u0301 loans in \u4e2d\u56fd\u2019s banks\u200b rose 3.5% \U0001f469\u200d\U0001f467 ...",
    "a [SEP] </s> b",
]


KINDS = {"byte_bpe": "byte-level BPE", "xlm-roberta": "Unigram"}


@pytest.fixture(scope="module", params=["byte_bpe", pytest.param("xlm-roberta", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> str:
    """As a recipe names it."""
    return request.param


@pytest.fixture(scope="module")
def out(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recipe with a vocabulary of the kind."""
    folder = tmp_path_factory.mktemp(kind)
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in _TEXTS))
    (folder / "recipe.yaml").write_text(RECIPE.format(kind=kind, out=folder / "out", texts=folder / "texts.jsonl"))
    assert main(["run", str(folder / "recipe.yaml")]) == 0
    return folder / "out"


def test_every_stage_has_the_tokenizer(out: Path, kind: str) -> None:
    tokenizer = load_tokenizer(out / "vocab")
    assert (tokenizer.kind.name, tokenizer.vocab_size) == (KINDS[kind], 512)
    for name in ("prepare/tokenizer", "pretrain", "and-back"):
        assert load_tokenizer(out / name).fingerprint == tokenizer.fingerprint
    corpus = open_prepared([out / "prepare"])
    for number in range(corpus.validation.num_documents):
        start, stop = corpus.validation.document_offsets[number : number + 2].tolist()
        assert corpus.validation.take_starts(start, stop)[0]
    report = json.loads((out / "vocab/report.json").read_text())
    assert report["texts"]["corpus, train"]["ours"]["share_unknown"] == 0
    assert 0.1 < report["compared"]["share_of_ours"] < 0.9
    config = json.loads((out / "finetune/seed-1/config.json").read_text())
    assert (config["pad_token_id"], config["vocab_size"]) == (1, 521)


def test_entries_move_between_the_kinds(out: Path) -> None:
    there, back, more = (
        json.loads((out / name / "transfer.json").read_text()) for name in ("to-wordpiece", "and-back", "more")
    )
    assert there["shares"]["new"] < 0.02 and there["shares"]["copied"] > 0.25
    assert there["pieces_saved"] == pytest.approx(-back["pieces_saved"])
    assert more["entries"] == {"copied": 512, "composed": 9, "new": 0}, "bytes too, and the mark of a space"


def test_predictions_have_offsets_in_the_text(out: Path) -> None:
    rows = [json.loads(line) for line in (out / "predict/predictions.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == _TEXTS
    for row in rows:
        assert all(one["text"] == row["text"][one["start"] : one["end"]].strip() != "" for one in row["entities"])
    assert rows[0]["entities"] == rows[1]["entities"] == []


@pytest.mark.parametrize("model", ["pretrain", "finetune/seed-1", "and-back"])
def test_transformers_reads_the_folders_with_the_same_ids(out: Path, model: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours, theirs = load_tokenizer(out / model), transformers.AutoTokenizer.from_pretrained(out / model)
    texts = [_TEXTS[2][:12], "The bank's\n in \u4e2d"]
    assert theirs(texts)["input_ids"] == [ours.template.frame(ids)[0].tolist() for ids in ours.encode(texts)]
    loaded = transformers.AutoModel.from_pretrained(out / model)
    assert loaded(**theirs(texts, return_tensors="pt", padding=True)).last_hidden_state.shape[0] == 2
    assert loaded.config.pad_token_id == theirs.pad_token_id == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["byte_bpe"], indirect=True)
def test_a_kind_of_a_users_package(out: Path, tmp_path: Path) -> None:
    places = os.pathsep.join([str(Path(__file__).parents[1] / "user_package"), *sys.path])

    def run(stage: str, *settings: str, allow: tuple[str, ...] = ("--allow-import", "mine.whole_words.config")) -> str:
        command = [sys.executable, "-m", "domainbert.cli", stage, "--out", str(tmp_path / stage), *allow, *settings]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True)
        return done.stderr if done.returncode else ""

    corpus = ("--corpus", str(out / "sample/corpus.jsonl"), "--corpus.validation_fraction", "0.2")
    assert run("vocab", *corpus, "--kind", "mine.whole_words.config.WholeWords", "--vocab_size", "300") == ""
    refused = run("prepare", *corpus, "--tokenizer", str(tmp_path / "vocab"), allow=())
    assert "the tokenizer is a WordLevel model; expected byte-level BPE, Unigram or WordPiece" in refused
    assert run("prepare", *corpus, "--tokenizer", str(tmp_path / "vocab"), "--num_workers", "1") == ""
    split = open_prepared([tmp_path / "prepare"]).train
    assert split.take_starts(0, split.num_tokens).all(), "each token is a word"
    tokens = json.loads((tmp_path / "vocab/tokenizer.json").read_text())["model"]["vocab"]
    assert (tokens["<hidden>"], len(tokens), tokens["<other>"]) == (1, 300, 4)
    assert 0.1 < np.mean(split.take(0, split.num_tokens) == tokens["<other>"]) < 0.9
