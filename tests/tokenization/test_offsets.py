"""The characters of each piece, in every kind of vocabulary."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from domainbert.base.choices import choices_of
from domainbert.tokenization.align import align_text, basic_words
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.load import DomainTokenizer
from tests.tokenization.properties import train_kind

_TEXTS = [
    "The bank's caf\u00e9,  in\n\u4e2d\u56fd\u4eba\u6c11\u94f6\u884c; US$3.5bn\u00a0x\u0301y",
    "\U0001f600 \U0001f469\u200d\U0001f467 \U0001f1ea\U0001f1fabanks \U0001f44d\U0001f3fd!",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e01\u0e32\u0e23\u0e40\u0e07\u0e34\u0e19\u0e17\u0e35\u0e48\u0e14\u0e35",
    "\u98df\u3079\u308b \u0627\u0644\u0628\u0646\u0643 \u05d1\u05e0\u05e7 \u0431\u0430\u043d\u043a",
]


_STEMS = ("bank", "loan", "farm", "rate", "price", "trade", "tax", "debt", "fund", "grow")
_SIZES = {"ByteBPE": 320, "Unigram": 192, "WordPiece": 320}


_MARKS = "\u0301\u0323\ufe0f\u0e31\u093f\u0897\u20dd"  # the newest is known to Python or not: it depends on its version
_CHARACTERS = sorted({*"abeoxz AEOZ.,;'()[]$=\u203c\u2019\u4e2d\u56fd\u0e01\u0939\U0001f600\U0001f469\u200d", *_MARKS})
_RANDOM = st.lists(
    st.sampled_from([*_CHARACTERS, *_MARKS, "\u203c\ufe0f", "e\u0301", "\u00e9", "\u2260", " \u0301"])
).map("".join)


def train(name: str, lowercase: bool) -> DomainTokenizer:
    """A vocabulary of some kind, to which every character is known."""
    words = (stem + end for stem in _STEMS for end in ("s", "ed", "ing", "er", "ers", "able", "ment"))
    return train_kind(name, [" ".join([*_TEXTS, *words, *_CHARACTERS] * 4)], _SIZES[name], lowercase)


def of_characters(trained: DomainTokenizer) -> DomainTokenizer:
    """The same kind and case, with an entry for each character or byte and none for more than one."""
    state = json.loads(trained.backend.to_str())
    model: dict[str, Any] = state["model"]
    special = [one["content"] for one in sorted(state["added_tokens"], key=lambda one: one["id"])]
    joined = [unicodedata.normalize("NFKC", one + mark) for one in _CHARACTERS for mark in _MARKS]
    shown = sorted({*"".join([*joined, *map(str.lower, joined), "\u2260\u0338"])})
    if model["type"] == "BPE":
        entries = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
        model["merges"] = []
    elif model["type"] == "WordPiece":
        entries = [*special, *shown, *(f"##{one}" for one in shown)]
    else:
        entries = [*special, "\u2581", *shown]
    unigram = model["type"] == "Unigram"
    model["vocab"] = [[one, -1.0] for one in entries] if unigram else {one: n for n, one in enumerate(entries)}
    return DomainTokenizer(Tokenizer.from_str(json.dumps(state)))


@pytest.fixture(scope="module", params=_SIZES)
def tokenizer(request: pytest.FixtureRequest) -> DomainTokenizer:
    """A vocabulary of each kind, cased."""
    return train(request.param, False)


@pytest.fixture(scope="module", params=[(name, lowercase) for name in _SIZES for lowercase in (False, True)])
def any_case(request: pytest.FixtureRequest) -> tuple[DomainTokenizer, DomainTokenizer]:
    """A vocabulary of each kind, cased or not, as trained and of single characters."""
    trained = train(*request.param)
    return trained, of_characters(trained)


def test_every_kind_is_here() -> None:
    assert _SIZES.keys() == choices_of(TokenizerKindConfig).keys()


@pytest.mark.parametrize("text", _TEXTS)
def test_a_piece_stands_for_its_text(tokenizer: DomainTokenizer, text: str) -> None:
    (encoding,) = tokenizer.encode_with_offsets([text])
    places = [place for start, stop in encoding.offsets for place in (start, stop)]
    covered = set()
    for token, (start, stop) in zip(encoding.tokens, encoding.offsets, strict=True):
        surface = tokenizer.pieces.surface(token)
        covered |= set(range(start, stop))
        if surface is None:  # the mark of a space, or bytes, of which some are parts of a character
            assert stop - start <= len(token)
        else:
            assert tokenizer.pieces.fold(text[start:stop]) == surface.text.strip()
    assert [start for start, _ in encoding.offsets] == sorted(start for start, _ in encoding.offsets)
    assert max(places) == len(text)
    left_out = {character for place, character in enumerate(text) if place not in covered}
    assert all(character.isspace() or character == "\u200d" for character in left_out)


@given(text=_RANDOM | st.text(max_size=20))
@example(text="Loan\u203c\ufe0fgirls")
@example(text="\ufe0fa \ufe0f \u0301b\u4e2d\u0301c")
def test_words_of_raw_text_are_basic_words_whatever_the_vocabulary(
    any_case: tuple[DomainTokenizer, DomainTokenizer], text: str
) -> None:
    trained, single = any_case
    ((basic,), (found,)) = basic_words([text]), align_text(trained, [text])
    for spans in (basic, found.word_offsets):
        places = [place for offsets in spans for place in offsets]
        assert places == sorted(places)
        assert all(start < end for start, end in spans)
    assert {start for start, _ in found.word_offsets} <= {start for start, _ in basic}
    assert {end for _, end in found.word_offsets} <= {end for _, end in basic}
    assert sorted(set(found.word_index)) == list(range(len(found.word_offsets)))
    known = set(text) <= {*_CHARACTERS, "\u00e9", "\u2260"}
    if known and all(single.pieces.fold(text[start:end]) for start, end in basic):  # uncased Unigram drops more marks
        (exact,) = align_text(single, [text])
        assert exact.word_offsets == basic
