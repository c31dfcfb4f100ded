from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from domainbert.corpus.config import CorpusConfig, Source
from domainbert.corpus.documents import read_documents
from domainbert.stages.vocab import vocab
from domainbert.tokenization.kinds.unigram.config import Unigram
from domainbert.tokenization.kinds.wordpiece.config import WordPiece
from domainbert.tokenization.load import load_tokenizer
from tests.refusals import refused


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusConfig:
    """100 documents of made-up words; a tenth or so is held out."""
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghij", k=chance.randint(2, 8))) for _ in range(500)]
    lines = [json.dumps({"text": " ".join(chance.choices(words, k=200)) + " £"}) for _ in range(100)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    return CorpusConfig([Source(str(tmp_path / "corpus.jsonl"))], validation_fraction=0.1)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_tokenizer_folder_and_its_report(
    corpus: CorpusConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = _folder(tmp_path / "first"), _folder(tmp_path / "second")
    vocab(first, corpus=corpus, vocab_size=256)
    (tmp_path / "ner.conll").write_text("Abc\tB-X\n(\tO\n\nabcdefghij\tO\n")
    (tmp_path / "classes.jsonl").write_text('{"text": "abc abc", "label": "x"}\n')
    labelled = [tmp_path / "ner.conll", tmp_path / "classes.jsonl"]
    metrics = vocab(second, corpus=corpus, vocab_size=500, model_max_length=128, compare_with=first, labelled=labelled)

    tokenizer, report = load_tokenizer(second), json.loads((second / "report.json").read_text())
    assert tokenizer.vocab_size == metrics["vocab_size"] == report["vocab_size"] == 512
    assert tokenizer.model_max_length == 128
    assert metrics["fingerprint"] == tokenizer.fingerprint
    assert report["compared"]["shared"] == 251 == metrics["compared"]["shared"]
    assert list(report["texts"]) == ["corpus, train", "corpus, validation", *map(str, labelled)]
    assert [text["ours"]["words"] for text in report["texts"].values()][2:] == [2, 2]
    assert sum(report["texts"][f"corpus, {side}"]["ours"]["words"] for side in ("train", "validation")) == 20_000
    assert all(text["difference"] <= 0 for text in report["texts"].values())
    assert report["training"]["documents"] < 100
    printed = capsys.readouterr().out
    assert "vocab_size 500 rounded up to 512, a multiple of 64" in printed
    assert "overlap: 251 entries" in printed


def test_rare_characters_are_told_with_the_setting_that_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Emoji of tweets became [UNK], and nothing said how to keep them."""
    texts = ["\U0001f600 a b", "\U0001f525 \U0001f525x c", "\u00e9t\u00e9 d"] * 4
    chance = random.Random(0)
    texts = [" ".join([text, *("".join(chance.choices("abcdefgh", k=4)) for _ in range(40))]) for text in texts]
    (tmp_path / "a.txt").write_text("\n".join(texts), encoding="utf-8")
    corpus = CorpusConfig([Source(str(tmp_path / "a.txt"), documents="line")], 1, validation_fraction=0)
    settings = {"vocab_size": 256, "lowercase": False, "min_frequency": 1}
    with refused(where="min_character_count", found="0", expected="an integer from 1..."):
        vocab(tmp_path, corpus=corpus, min_character_count=0)

    def made(name: str, **changes: int) -> tuple[str, list[list[int]], dict]:
        out = _folder(tmp_path / name)
        warnings = vocab(out, corpus=corpus, **{**settings, **changes})["warnings"]
        tokenizer = load_tokenizer(out)
        ids = tokenizer.encode(["\U0001f600", "\U0001f525x", "\u00e9"])
        printed, report = capsys.readouterr().out.splitlines(), json.loads((out / "report.json").read_text())
        lines = [line for line in printed if line.startswith("alphabet")]
        assert [line for line in printed if line.startswith("warning")] == [f"warning: {one}" for one in warnings]
        assert report["warnings"] == warnings
        return lines[0], [tokenizer.unk_id in one for one in ids], report

    said, unknown, report = made("default")
    rare = "rare characters: 3 (fewer occurrences than min_character_count: 10), whose 20 occurrences become [UNK]"
    assert said == f"alphabet: 94 characters; {rare}: \u00e9 \U0001f525 \U0001f600" and unknown == [True, True, True]
    assert report["training"]["rare_character_occurrences"] == 20
    characters = sum(len(text.replace(" ", "")) for text in texts)
    (warning,) = report["warnings"]
    assert warning.startswith(
        f"{100 * 20 / (characters - 12):.2f} % of the characters of the corpus have no piece; {rare}"
    )
    assert warning.endswith("; lower min_character_count or set kind: byte_bpe")
    said, unknown, report = made("some", min_character_count=8)
    assert said.startswith("alphabet: 96 characters; rare characters: 1 (fewer occurrences than min") and unknown == [
        True,
        False,
        False,
    ]
    said, unknown, report = made("all", min_character_count=1)
    assert said == "alphabet: 97 characters; none is too rare for a piece" and unknown == [False] * 3
    assert report["training"]["rare_characters"] == {} and report["warnings"] == []


@pytest.mark.parametrize(
    ("word", "settings", "is_lost"),
    [
        ("\u0915\u0941", {}, True),
        ("\u0915\u0941", {"lowercase": False}, False),
        ("\u0915\u0941", {"kind": WordPiece(keep_accents=True)}, False),
        ("\u304c\u304e", {}, True),
        ("\u0e19\u0e33", {"kind": Unigram()}, False),
        ("\u00e9t\u00e9", {}, False),
    ],
)
def test_scripts_whose_marks_are_stripped_are_told(
    tmp_path: Path, word: str, settings: dict[str, Any], is_lost: bool
) -> None:
    chance = random.Random(0)
    lines = [" ".join([word, *("".join(chance.choices("abcdefgh", k=4)) for _ in range(6))]) for _ in range(60)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    corpus = CorpusConfig([Source(str(tmp_path / "a.txt"), documents="line")], 1, validation_fraction=0)
    warnings = vocab(_folder(tmp_path / "out"), corpus=corpus, vocab_size=256, min_frequency=1, **settings)["warnings"]
    assert [warning[:22] for warning in warnings] == (["14.29 % of the words l"] if is_lost else [])


def test_few_rare_characters_are_not_worth_a_warning(tmp_path: Path, corpus: CorpusConfig) -> None:
    path = Path(corpus.sources[0].path)
    lines = path.read_text().splitlines()[:80]
    characters = sum(len(json.loads(line)["text"].replace(" ", "")) for line in lines)
    for rare, warned in ((5, False), (9, True)):
        text = json.dumps({"text": "\u2603" * rare})
        path.write_text("\n".join([*lines, text]), encoding="utf-8")
        whole = CorpusConfig(corpus.sources, 1, validation_fraction=0)
        found = vocab(_folder(tmp_path / str(rare)), corpus=whole, vocab_size=256)["warnings"]
        assert (rare / characters > 1e-4) == warned == bool(found)


def test_what_is_rare_is_told_by_the_vocabulary_s_own_name(
    corpus: CorpusConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = _folder(tmp_path / "first"), _folder(tmp_path / "second")
    vocab(first, corpus=corpus, vocab_size=256)
    metrics = vocab(second, corpus=corpus, vocab_size=256, min_character_count=500, kind=Unigram(), compare_with=first)
    assert "min_character_count: 500), whose 90 occurrences become <unk>: \u00a3" in capsys.readouterr().out
    assert load_tokenizer(second).tokens[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert 0 < metrics["compared"]["share_of_ours"] < 1


def test_the_validation_side_is_not_learnt_from(corpus: CorpusConfig, tmp_path: Path) -> None:
    whole = vocab(_folder(tmp_path / "a"), corpus=corpus, vocab_size=256)
    train = [json.dumps({"text": document.text}) for document in read_documents(corpus) if document.split == "train"]
    assert 50 < len(train) < 100
    Path(corpus.sources[0].path).write_text("\n".join(train))
    assert vocab(_folder(tmp_path / "b"), corpus=corpus, vocab_size=256)["fingerprint"] == whole["fingerprint"]


def test_a_corpus_without_words_for_the_size(corpus: CorpusConfig, tmp_path: Path) -> None:
    with refused(problem="...too small for vocab_size 65,536:...", expected="a vocab_size of at most..."):
        vocab(_folder(tmp_path / "out"), corpus=corpus, vocab_size=65_536)
    assert list((tmp_path / "out").iterdir()) == []
