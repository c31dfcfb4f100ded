from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel

from domainbert.tokenization.kind import Surface
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.surfaces import Origin, Vocabulary, load_vocabulary, origins, vocabulary_of
from tests.refusals import refused

ROBERTA = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}


def byte_level() -> Tokenizer:
    """RoBERTa's kind: "\u0120" before a piece that begins a word, and bytes as characters."""
    pieces = [*ROBERTA.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = [("\u0120", "b"), ("\u0120b", "a"), ("n", "k"), ("\u0120ba", "nk"), ("i", "n"), ("in", "g"), ("Ã", "©")]
    vocab = {piece: number for number, piece in enumerate([*pieces, *("".join(pair) for pair in merges)])}
    backend = Tokenizer(BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(list(ROBERTA.values()))
    return backend


def unigram() -> Tokenizer:
    """XLM-R's kind: "\u2581" before a piece that begins a word."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", "\u2581bank", "ing", "s", "\u2581a", "b", ","]
    backend = Tokenizer(Unigram([(piece, -float(rank)) for rank, piece in enumerate(pieces)], unk_id=3))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return backend


def names(vocabulary: Vocabulary, surface: Surface) -> list[str]:
    return [vocabulary.tokens[piece] for piece in vocabulary.pieces(surface)]


def test_wordpiece(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    vocabulary = vocabulary_of(make_tokenizer(["bank", "##ing", "##", "in", "##in", "##g", "g"]))
    assert vocabulary.special_ids == {role: number for number, role in enumerate(SPECIAL_TOKENS)}
    assert vocabulary.surfaces[:5] == [None] * 5
    assert vocabulary.surfaces[5:8] == [Surface("bank", True), Surface("ing", False), Surface("##", True)]
    assert names(vocabulary, Surface("Banking", True)) == ["bank", "##ing"]
    assert names(vocabulary, Surface("ing", True)) == ["in", "##g"]
    assert names(vocabulary, Surface("ING", False)) == ["##ing"]
    assert names(vocabulary, Surface("ingin", False)) == ["##ing", "##in"]
    assert names(vocabulary, Surface("bank", False)) == [], "no piece of it continues a word"
    assert vocabulary.lowercases
    assert vocabulary.cut(["Banking", "x"]) == [["bank", "##ing"], ["[UNK]"]]


def test_byte_level_bpe() -> None:
    vocabulary = Vocabulary(byte_level())
    assert {role: vocabulary.tokens[number] for role, number in vocabulary.special_ids.items()} == ROBERTA
    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    assert vocabulary.surfaces[ids["\u0120bank"]] == Surface("bank", True)
    assert vocabulary.surfaces[ids["ing"]] == Surface("ing", False)
    assert vocabulary.surfaces[ids["Ã©"]] == Surface("é", False)
    assert vocabulary.surfaces[ids["Ã"]] is None, "half of a character"
    assert vocabulary.surfaces[ids["\u0120"]] is None
    assert names(vocabulary, Surface("banking", True)) == ["\u0120bank", "ing"]
    assert names(vocabulary, Surface("banking", False)) == ["b", "a", "nk", "ing"]
    assert names(vocabulary, Surface("é", True)) == ["\u0120", "Ã©"]
    assert not vocabulary.lowercases
    assert vocabulary.cut(["banking"]) == [["\u0120bank", "ing"]]
    every = [Origin("copied", (number,)) for number in range(len(ids))]
    assert origins(vocabulary, vocabulary) == every, "also halves of characters"


def test_unigram() -> None:
    vocabulary = Vocabulary(unigram())
    assert vocabulary.tokens[vocabulary.special_ids["mask_token"]] == "<mask>"
    assert vocabulary.surfaces[5:7] == [Surface("bank", True), Surface("ing", False)]
    assert vocabulary.surfaces[4] is None
    assert names(vocabulary, Surface("banking", True)) == ["\u2581bank", "ing"]
    assert names(vocabulary, Surface("ings", False)) == ["ing", "s"]
    assert names(vocabulary, Surface("b☃", False)) == ["b"], "unknown characters are left out"
    assert vocabulary.cut(["banking"]) == [["\u2581bank", "ing"]]


@given(st.text("abgiknésé ", min_size=1, max_size=12).map(str.strip).filter(bool))
def test_byte_level_pieces_spell_the_text(text: str) -> None:
    vocabulary = Vocabulary(byte_level())
    inside = vocabulary.pieces(Surface(text, False))
    assert "".join(vocabulary.tokens[piece] for piece in inside) == normalizers.ByteLevel().normalize_str(text)
    begins = vocabulary.pieces(Surface(text, True))
    assert "".join(vocabulary.tokens[piece] for piece in begins) == normalizers.ByteLevel().normalize_str(" " + text)


def test_loaded_from_a_folder(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    assert load_vocabulary(tmp_path).tokens == Vocabulary(byte_level()).tokens
    Tokenizer(WordLevel({"a": 0}, "a")).save(str(tmp_path / "tokenizer.json"))
    expected = "byte-level BPE, Unigram, WordPiece or BPE with \u2581 before words"
    with refused(file=tmp_path, problem="the tokenizer is a WordLevel model", expected=expected):
        load_vocabulary(tmp_path)
