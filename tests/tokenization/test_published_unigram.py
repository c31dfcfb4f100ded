"""Unigram vocabularies in the forms that published models have: a tokenizer.json alone, made by hand."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram

from domainbert.data.parallel_encoding import split_text
from domainbert.tokenization.align import align_text, align_words
from domainbert.tokenization.extend import extend_tokenizer
from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer
from domainbert.tokenization.special_tokens import bert_template, roberta_template
from domainbert.tokenization.surfaces import load_vocabulary

_PIECES = {
    **{
        "\u2581": -4.0,
        "\u2581the": -3.0,
        "\u2581bank": -5.0,
        "s": -3.5,
        "'": -4.5,
        ",": -3.2,
        "fin": -6.0,
        "\u2581cafe": -7.0,
    },
    **{
        "\u2581caf": -7.5,
        "\u00e9": -8.0,
        "e": -4.2,
        "\u2581\u4e2d\u56fd": -8.5,
        "\u94f6\u884c": -9.0,
        "a": -4.3,
        "b": -4.4,
    },
    **{"n": -4.1, "k": -4.6, "t": -4.0, "h": -4.1, "ing": -4.9, '"': -5.0},
}
_TEXTS = [
    "The bank's caf\u00e9, the\n banking  ``s''",
    "\ufb01n the \u4e2d\u56fd\u94f6\u884c \U0001f600 bank\u00a0s",
    "cafe\u0301 \u2028 bank",
    "",
    "  ",
]


def charsmap(key: str, value: str) -> bytes:
    """A Precompiled map of one character: a double-array trie of its bytes (darts-clone), and its replacement."""
    units, node = [0] * 2048, 0
    units[0] = 256 << 10
    node = 256
    for step, byte in enumerate(key.encode(), 2):
        node ^= byte
        units[node] = (256 * step << 10) | byte | (step == len(key.encode()) + 1) << 8
        node ^= 256 * step
    return struct.pack("<I", 4 * len(units)) + struct.pack("<2048I", *units) + value.encode() + b"\0"


_LIGATURE = charsmap("\ufb01", "fi")


def built(special: list[str], unknown: int, normalizer, pre_tokenizer, frame: dict, behind: str = "") -> Tokenizer:
    scored = [*((token, 0.0) for token in special), *_PIECES.items()]
    backend = Tokenizer(Unigram([*scored, *([(behind, 0.0)] if behind == "<mask>" else [])], unknown))
    backend.normalizer, backend.pre_tokenizer = normalizer, pre_tokenizer
    mask = behind or special[-1]
    named = [AddedToken(token, special=True, normalized=False) for token in special if token != mask]
    backend.add_special_tokens([*named, AddedToken(mask, special=True, normalized=False, lstrip=True)])
    ids = [(token, backend.token_to_id(token)) for token in frame["tokens"]]
    backend.post_processor = processors.TemplateProcessing(frame["single"], frame["pair"], ids)
    return backend


def albert() -> Tokenizer:
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD()]
    steps += [normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Precompiled(_LIGATURE)]
    frame = {
        "single": "[CLS]:0 $A:0 [SEP]:0",
        "pair": "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        "tokens": ["[CLS]", "[SEP]"],
    }
    cut = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return built(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], 1, normalizers.Sequence(steps), cut, frame)


def xlm_roberta() -> Tokenizer:
    frame = {"single": "<s> $A </s>", "pair": "<s> $A </s> </s> $B </s>", "tokens": ["<s>", "</s>"]}
    cut = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return built(["<s>", "<pad>", "</s>", "<unk>"], 3, normalizers.Precompiled(_LIGATURE), cut, frame, "<mask>")


def deberta() -> Tokenizer:
    """With the mask as an added token that is no entry of the model."""
    steps = [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(), normalizers.Strip(False, True)]
    frame = {
        "single": "[CLS]:0 $A:0 [SEP]:0",
        "pair": "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        "tokens": ["[CLS]", "[SEP]"],
    }
    cut = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    return built(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], 3, normalizers.Sequence(steps), cut, frame, "[MASK]")


FORMS = {  # padding, unknown, first, between, mask; the frame
    "albert": (albert, (0, 1, 2, 3, 4), bert_template(2, 3)),
    "xlm-roberta": (xlm_roberta, (1, 3, 0, 2, 4 + len(_PIECES)), roberta_template(0, 2)),
    "deberta-v2": (deberta, (0, 3, 1, 2, 4 + len(_PIECES)), bert_template(1, 2)),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, tmp_path: Path):
    """Return the library's tokenizer, ours of the folder, and the expected ids and frame."""
    make, ids, frame = FORMS[request.param]
    make().save(str(tmp_path / "tokenizer.json"))
    return make(), load_tokenizer(tmp_path), ids, frame


def test_roles_and_frame_are_found_without_a_config(form) -> None:
    theirs, ours, ids, frame = form
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == ids
    assert (ours.kind.name, ours.template, ours.vocab_size) == ("Unigram", frame, theirs.get_vocab_size())
    for pair in ((_TEXTS[0],), (_TEXTS[0], _TEXTS[1])):
        found, types = ours.template.frame(*ours.encode(pair))
        encoding = theirs.encode(*pair)
        assert (found.tolist(), types.tolist()) == (encoding.ids, encoding.type_ids)


def test_ids_and_offsets_are_those_of_the_library(form) -> None:
    theirs, ours, _, _ = form
    for text in _TEXTS:
        encoding, (found,) = theirs.encode(text, add_special_tokens=False), ours.encode_with_offsets([text])
        assert (found.ids, found.offsets, ours.encode([text])) == (encoding.ids, encoding.offsets, [encoding.ids])
        parts = ours.encode_with_starts(list(split_text(text, 3)))
        assert [piece for ids, _ in parts for piece in ids.tolist()] == encoding.ids


def test_words_are_found(form) -> None:
    _, ours, _, _ = form
    text = "the  bank's,\n\u4e2d\u56fd\u94f6\u884c bank \ufb01n"
    (aligned,) = align_text(ours, [text])
    assert [text[start:end] for start, end in aligned.word_offsets][:4] == ["the", "bank", "'", "s"]
    assert [text[start:end] for start, end in aligned.word_offsets][-3:] == ["\u94f6\u884c", "bank", "\ufb01n"]
    words = ["the", "bank's", "\u4e2d\u56fd", ",", "the"]
    (labelled,) = align_words(ours, [words])
    assert labelled.input_ids == ours.encode([" ".join(words)])[0]
    assert sorted(set(labelled.word_index)) == [0, 1, 2, 3, 4]
    ((ids, starts),) = ours.encode_with_starts(["the bank's \u4e2d\u56fd\u94f6\u884c"])
    tokens = [ours.tokens[number] for number in ids.tolist()]
    assert tokens == ["\u2581the", "\u2581bank", "'", "s", "\u2581\u4e2d\u56fd", "\u94f6\u884c"]
    assert np.flatnonzero(starts).tolist() == [0, 1, 2, 3, 4, 5]


def test_words_are_added_behind_the_last_id(form) -> None:
    theirs, ours, _, _ = form
    more = extend_tokenizer(ours, [" banking", " then"])
    size = theirs.get_vocab_size()
    assert more.tokens[:size] == ours.tokens and more.tokens[size:] == ["\u2581banking", "\u2581then"]
    assert more.encode(["banking then"]) == [[size, size + 1]]
    assert more.encode(["the banks fin \u2603"]) == ours.encode(["the banks fin \u2603"])
    assert (more.mask_id, more.special_tokens) == (ours.mask_id, ours.special_tokens)


def test_an_added_word_cuts_no_other_text_anew() -> None:
    """Its pieces are less probable together than any entry, and so is the word."""
    scores = {"\u2581econom": -11.0, "etric": -14.0, "etrics": -12.0, "s": -3.0, "\u2581": -16.2}
    special = [(token, 0.0) for token in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")]
    backend = Tokenizer(Unigram([*special, *scores.items()], 1))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    roles = dict(zip(SPECIAL_TOKENS, (token for token, _ in special), strict=True))
    ours = DomainTokenizer(backend, roles)
    more = extend_tokenizer(ours, [" econometric"])
    assert more.encode(["econometric"]) == [[ours.vocab_size]]
    assert more.encode(["econometrics"]) == ours.encode(["econometrics"]) == [[5, 7]]


def test_an_added_word_wins_over_shorter_added_words_inside_it(form) -> None:
    _, ours, _, _ = form
    words = [" " + "".join(parts) for size in (3, 4) for parts in product(["fin", "the", "in", "s"], repeat=size)]
    ids = extend_tokenizer(ours, words).encode([word.strip() for word in words])
    assert ids == [[ours.vocab_size + index] for index in range(len(words))]


def test_they_are_read_as_the_old_vocabulary_of_a_transfer(tmp_path: Path) -> None:
    albert().save(str(tmp_path / "tokenizer.json"))
    vocabulary = load_vocabulary(tmp_path)
    assert vocabulary.special_ids == {"pad_token": 0, "unk_token": 1, "cls_token": 2, "sep_token": 3, "mask_token": 4}
    assert vocabulary.lowercases
    assert vocabulary.cut(["Banking", "caf\u00e9"]) == [["\u2581bank", "ing"], ["\u2581cafe"]]
