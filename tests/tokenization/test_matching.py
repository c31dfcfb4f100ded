from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE, Unigram

from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.surfaces import Origin, Vocabulary, kind_shares, origins, vocabulary_of

Make = Callable[..., DomainTokenizer]


def test_copied_composed_and_new(make_tokenizer: Make) -> None:
    old = vocabulary_of(make_tokenizer(["in", "##g", "bank", "##in", "g"]))  # ids from 5
    new = vocabulary_of(make_tokenizer(["bank", "##bank", "banking", "##ing", "☃", "##g"]))
    copies = [Origin("copied", (number,)) for number in range(5)]
    assert origins(new, old)[:5] == copies
    assert origins(new, old)[5:] == [
        Origin("copied", (7,)),
        Origin("composed", (7,)),  # no piece of it continues a word, so the word itself
        Origin("composed", (7, 8, 6)),
        Origin("composed", (8, 6)),
        Origin("new", ()),
        Origin("copied", (6,)),
    ]
    assert origins(new, old, keep_role=False)[8] == Origin("composed", (5, 6)), "cut as a word: in ##g"
    assert kind_shares(origins(new, old)) == {"copied": 7 / 11, "composed": 3 / 11, "new": 1 / 11}


def test_the_same_vocabulary_is_copied_entry_by_entry(make_tokenizer: Make) -> None:
    for lowercase in (True, False):
        vocabulary = vocabulary_of(make_tokenizer(["Bank", "bank", "##", "##s", "[unused1]", "é"], lowercase))
        assert origins(vocabulary, vocabulary) == [Origin("copied", (number,)) for number in range(11)]


def test_case(make_tokenizer: Make) -> None:
    cased = vocabulary_of(make_tokenizer(["Monday", "GDP", "bank", "Bank", "##S"], lowercase=False))
    uncased = vocabulary_of(make_tokenizer(["monday", "gdp", "bank", "##s"]))
    assert [origin.pieces for origin in origins(uncased, cased)[5:]] == [(5,), (6,), (7,), (9,)]
    assert [origin.pieces for origin in origins(cased, uncased)[5:]] == [(5,), (6,), (7,), (7,), (8,)]
    assert {origin.kind for origin in [*origins(uncased, cased), *origins(cased, uncased)]} == {"copied"}


def test_special_tokens_by_role_and_signs_in_any_role(make_tokenizer: Make) -> None:
    named = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    pieces = [*named.values(), *sorted(pre_tokenizers.ByteLevel.alphabet()), "\u0120a"]
    old_ids = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(BPE(old_ids, [("\u0120", "a")]))
    backend.add_special_tokens(list(named.values()))
    new = vocabulary_of(make_tokenizer([",", "a", "##a", "b"]))
    found = dict(zip(new.tokens, origins(new, Vocabulary(backend)), strict=True))
    assert {token: found[token].pieces for token in SPECIAL_TOKENS.values()} == {
        "[PAD]": (1,),
        "[UNK]": (3,),
        "[CLS]": (0,),
        "[SEP]": (2,),
        "[MASK]": (),
    }
    assert found["[MASK]"].kind == "new"
    assert found[","] == Origin("copied", (old_ids[","],))
    assert found["a"] == Origin("copied", (old_ids["\u0120a"],))
    assert found["##a"] == Origin("copied", (old_ids["a"],))
    assert found["b"] == Origin("composed", (old_ids["\u0120"], old_ids["b"]))


def test_a_sign_in_its_own_role_goes_first(make_tokenizer: Make) -> None:
    old = vocabulary_of(make_tokenizer(["##,", ",", ";", "##-"]))  # ids from 5
    new = vocabulary_of(make_tokenizer([",", "##,", "##;", "-"]))
    assert [origin.pieces for origin in origins(new, old)[5:]] == [(6,), (5,), (7,), (8,)]


def test_what_wordpiece_cuts_apart_starts_a_word_there(make_tokenizer: Make) -> None:
    """No text contains "##," or "##中", so their vectors are untrained."""
    old = vocabulary_of(make_tokenizer(["##,", ",", "##.", ".", "##中", "中", "##国", "国", "##t", "t", "'"]))
    entries = ["<unk>", ",", ",.", "▁.,", "中", "中国", "t", "'t", "t,.", "..☃"]
    new = Vocabulary(Tokenizer(Unigram([(entry, -1.0) for entry in entries], 0)))
    found = dict(zip(entries, origins(new, old), strict=True))
    ids = {token: number for number, token in enumerate(old.tokens)}
    assert {entry: [old.tokens[piece] for piece in origin.pieces] for entry, origin in found.items()} == {
        "<unk>": ["[UNK]"],
        ",": [","],
        ",.": [",", "."],
        "▁.,": [".", ","],
        "中": ["中"],
        "中国": ["中", "国"],
        "t": ["##t"],
        "'t": ["'", "t"],
        "t,.": ["##t", ",", "."],
        "..☃": [".", "."],
    }
    assert found["中"] == Origin("copied", (ids["中"],)) and found[",."].kind == "composed"


def test_no_entries() -> None:
    assert kind_shares([]) == pytest.approx({"copied": 0.0, "composed": 0.0, "new": 0.0})
