from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from domainbert.cli import main
from domainbert.tokenization import train
from domainbert.tokenization.kind import tokens_by_id
from domainbert.tokenization.kinds.wordpiece.config import WordPiece
from domainbert.tokenization.kinds.wordpiece.kind import WordPieceKind
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.tokenization.train import round_vocab_size
from domainbert.tokenization.words import WordCounter
from tests.refusals import refused

_TRAIN = """
import json, sys
from pathlib import Path
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.kinds.wordpiece.kind import WordPieceKind
from domainbert.tokenization.words import WordCounter
kind, counter, lowercase = WordPieceKind(), WordCounter(10**9), sys.argv[3] == "True"
for text in json.loads(Path(sys.argv[1]).read_text()):
    counter.add(text)
words = kind.select(counter, lowercase, 10)
DomainTokenizer(kind.train(words, int(sys.argv[2]), lowercase, 2)).save(Path(sys.argv[4]), 512)
"""

_FEW = "one two three two"
_MORE = " ".join(f"{letter}x {letter}x {letter}y {letter}y" for letter in string.ascii_lowercase[:25])


def _texts(seed: int = 0, documents: int = 200) -> list[str]:
    """Made-up words, most of them in equal numbers, so that almost every merge is a tie."""
    chance = random.Random(seed)
    syllables = [a + b for a in "bcdfghklmnprst" for b in "aeiouy"]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(1500)]
    return [" ".join(chance.choices(words, k=100)).capitalize() + "." for _ in range(documents)]


def train_wordpiece(texts: list[str], vocab_size: int, lowercase: bool = True) -> Tokenizer:
    counter, kind = WordCounter(10**9), WordPieceKind()
    for text in texts:
        counter.add(text)
    return kind.train(kind.select(counter, lowercase, 10), vocab_size, lowercase, 2)


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return train_wordpiece(_texts(), 512)


def _digests(texts: list[str], vocab_size: int, lowercase: bool, folder: Path) -> list[str]:
    """Hash of `tokenizer.json` and `vocab.txt` for each of two trainings in processes of their own."""
    (folder / "texts.json").write_text(json.dumps(texts))
    digests = []
    for threads, seed in (("1", "0"), ("2", "random")):
        out = folder / f"{threads}-{seed}-{lowercase}"
        environment = os.environ | {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", _TRAIN, str(folder / "texts.json"), str(vocab_size), str(lowercase), str(out)]
        subprocess.run(command, check=True, env=environment)
        content = (out / "tokenizer.json").read_bytes() + (out / "vocab.txt").read_bytes()
        digests.append(hashlib.sha256(content).hexdigest())
    return digests


def test_equal_to_the_byte_in_every_process(tmp_path: Path) -> None:
    assert len(set(_digests(_texts(), 512, True, tmp_path))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_equal_to_the_byte_on_a_real_corpus(econ_data: Path, tmp_path: Path, lowercase: bool) -> None:
    with gzip.open(econ_data / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    assert len(texts) == 1316
    assert len(set(_digests(texts, 16384, lowercase, tmp_path))) == 1


def test_the_order_of_the_documents_does_not_matter(trained: Tokenizer) -> None:
    texts = _texts()
    random.Random(1).shuffle(texts)
    assert train_wordpiece(texts, 512).to_str() == trained.to_str()


def test_ids_begin_with_special_tokens_and_characters(trained: Tokenizer) -> None:
    tokens = tokens_by_id(trained)
    uncased = sorted(set(map(chr, range(33, 127))) - set(string.ascii_uppercase))
    inside = ["##" + character for character in uncased if character.isalnum()]
    assert tokens[: 5 + 68 + 36] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *uncased, *inside]
    assert len(tokens) == len(set(tokens)) == 512


def test_frequent_words_become_pieces() -> None:
    tokenizer = DomainTokenizer(train_wordpiece(["banking " * 500, *_texts()], 512))
    assert tokenizer.encode(["Banking"]) == [[tokenizer.tokens.index("banking")]]


@given(word=st.text(alphabet=string.printable, max_size=100))
def test_no_ascii_word_is_unknown(trained: Tokenizer, word: str) -> None:
    tokenizer = DomainTokenizer(trained)
    assert tokenizer.unk_id not in tokenizer.encode([word.replace("[UNK]", "")])[0]


def test_cased_keeps_case_and_accents() -> None:
    texts = [text.replace("ba", "BÀ") for text in _texts()]
    cased, uncased = (train_wordpiece(texts, 512, lowercase=lowercase) for lowercase in (False, True))
    assert cased.encode("BÀ").tokens == ["BÀ"]
    assert uncased.encode("BÀ").tokens == ["ba"]


def test_rare_characters_and_long_words_are_left_out_and_counted() -> None:
    counter = WordCounter(10**6)
    counter.add("é" * 10 + " ☃☃ a☃ €ab " + "€ " * 9 + "x" * 101 + " ok ok")
    words = WordPieceKind().select(counter, False, 10)
    assert words.counts == {"ok": 2, "é" * 10: 1, "€": 9, "€ab": 1}
    assert "é" in words.alphabet
    assert words.rare_characters == {"☃": 3}
    assert (words.rare_words, words.long_words) == (2, 1)


def test_the_alphabet_is_limited_by_count_then_code_point() -> None:
    counter = WordCounter(10**6)
    letters = [chr(0x0400 + number % 256) + chr(0x1000 + number) for number in range(1200)]
    counter.add(" ".join(letters * 10))
    words = WordPieceKind().select(counter, False, 10)
    assert len(words.alphabet) == 94 + 1000
    assert all(count == 10 for count in words.rare_characters.values())
    assert min(words.rare_characters) > max(character for character in words.alphabet)


def test_only_the_most_frequent_words_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "_MAX_WORDS", 2)
    counter = WordCounter(10**6)
    counter.add("c c c b b a a d")
    words = WordPieceKind().select(counter, True, 10)
    assert (words.counts, words.infrequent_words) == ({"a": 2, "c": 3}, 3)


@pytest.mark.parametrize(("size", "rounded"), [(1, 64), (64, 64), (65, 128), (16_000, 16_000), (30_522, 30_528)])
def test_sizes_are_multiples_of_64(size: int, rounded: int) -> None:
    assert round_vocab_size(size) == rounded


@pytest.mark.parametrize(
    ("texts", "vocab_size", "problem", "expected"),
    [
        ([], 512, "the corpus has no words", "..."),
        (["", " \n\t\x00 "], 512, "the corpus has no words", "..."),
        ([_FEW], 2000, "...vocab_size 2,000 (rounded to 2,048): with min_frequency 2 it...", "more text"),
        ([_MORE], 500, "...vocab_size 500 (rounded to 512): ... supports 159 pieces", "a vocab_size of at..."),
        ([_FEW], 64, "vocab_size 64 is too small: ... 68 characters ... need 109 pieces", "at least 128"),
        (["a \ud800"], 512, "...half a surrogate pair", "..."),
    ],
)
def test_a_corpus_that_cannot_support_the_size(texts: list[str], vocab_size: int, problem: str, expected: str) -> None:
    with refused(problem=problem, expected=expected):
        train_wordpiece(texts, vocab_size)


def test_an_uncased_vocabulary_may_keep_accents(tmp_path: Path) -> None:
    texts = ["D\u00fcrre und \u00c4rger, caf\u00e9 und CAF\u00c9 oder Durre", *_texts()] * 10
    counter, kind = WordCounter(10**9), WordPiece(keep_accents=True).build()
    for text in texts:
        counter.add(text)
    kept = DomainTokenizer(kind.train(kind.select(counter, True, 10), 512, True, 2))
    plain = DomainTokenizer(train_wordpiece(texts, 512))
    for one, other, equal in (("D\u00dcRRE", "d\u00fcrre", True), ("d\u00fcrre", "durre", False)):
        assert (kept.encode([one]) == kept.encode([other])) == equal
        assert plain.encode([one]) == plain.encode([other])
    assert kept.unk_id not in kept.encode(["D\u00fcrre, \u00c4rger"])[0] and "##\u00fc" in kept.tokens
    kept.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == kept.fingerprint
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(texts, add_special_tokens=False)["input_ids"] == kept.encode(texts)


def test_the_setting_to_keep_accents_is_found_by_its_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "D\u00fcrre in K\u00f6ln, viel Regen in Essen, aber Sonne und Wind bei Hamburg. " * 12
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    words = ["vocab", "--corpus", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out"), "--vocab_size", "128"]
    assert main([*words, "--keep_accents", "true"]) == 2
    (hint,) = re.findall(r"did you mean '([\w.]+)'", capsys.readouterr().err)
    assert main([*words, f"--{hint}", "true", "--min_frequency", "1", "--corpus.validation_fraction", "0"]) == 0
    assert "d\u00fc" in load_tokenizer(tmp_path / "out").tokens
