"""The characters that each piece stands for, in every kind of vocabulary."""

from __future__ import annotations

import pytest

from domainbert.settings.choices import choices_of
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.words import WordCounter

_TEXTS = [
    "The bank's caf\u00e9,  in\n\u4e2d\u56fd\u4eba\u6c11\u94f6\u884c; US$3.5bn\u00a0x\u0301y",
    "\U0001f600 \U0001f469\u200d\U0001f467 \U0001f1ea\U0001f1fabanks \U0001f44d\U0001f3fd!",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e01\u0e32\u0e23\u0e40\u0e07\u0e34\u0e19\u0e17\u0e35\u0e48\u0e14\u0e35",
    "\u98df\u3079\u308b \u0627\u0644\u0628\u0646\u0643 \u05d1\u05e0\u05e7 \u0431\u0430\u043d\u043a",
]


_STEMS = ("bank", "loan", "farm", "rate", "price", "trade", "tax", "debt", "fund", "grow")
_SIZES = {"ByteBPE": 320, "Unigram": 192, "WordPiece": 256}


@pytest.fixture(scope="module", params=_SIZES)
def tokenizer(request: pytest.FixtureRequest) -> DomainTokenizer:
    """A vocabulary of each kind, cased, to which every character is known."""
    kind = choices_of(TokenizerKindConfig)[request.param]().build()
    counter = WordCounter(10**9)
    counter.add(" ".join([*_TEXTS, *(stem + end for stem in _STEMS for end in ("s", "ed", "ing", "er", "ers"))] * 4))
    return DomainTokenizer(kind.train(kind.select(counter, False, 1), _SIZES[request.param], False, 1))


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
