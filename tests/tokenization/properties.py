"""What holds of a vocabulary of any kind, and the text that is to break it."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import strategies as st

from domainbert.base.choices import choices_of
from domainbert.data.parallel_encoding import split_text
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.words import WordCounter

_ODD = "\u00e9\u0301\u00a0\u2028\u200b\u200d\u4e2d\u56fd\u0939\u093f\u0e01\u0e33\U0001f469\U0001f3fd\ufe0f\x00\ufeff"


def train_kind(name: str, texts: Collection[str], vocab_size: int, lowercase: bool = False) -> DomainTokenizer:
    """A vocabulary of the kind with this class name, to which every character of the texts is known."""
    kind = choices_of(TokenizerKindConfig)[name]().build()
    counter = WordCounter(10**9)
    for text in texts:
        counter.add(text)
    return DomainTokenizer(kind.train(kind.select(counter, lowercase, 1), vocab_size, lowercase, 1))


def hostile_text(special_tokens: Collection[str], more: str = "") -> st.SearchStrategy[str]:
    """Text that spells no special token, which is that token to transformers and text to us; `more` is often in it."""
    usual = st.sampled_from("abank \n\t.,'%$-_<>0159AE" + _ODD + more)
    characters = usual | st.characters(codec="utf-8")
    return st.text(characters, max_size=60).filter(lambda text: not any(token in text for token in special_tokens))


def names(tokenizer: DomainTokenizer, ids: list[int]) -> list[str]:
    """The entries of a vocabulary by their numbers."""
    return [tokenizer.tokens[piece] for piece in ids]


def check_encoding_in_pieces(tokenizer: DomainTokenizer, text: str, characters: int) -> None:
    """A text that is cut has the ids and beginnings of words of the whole."""
    parts = tokenizer.encode_with_starts(list(split_text(text, characters)))
    ((ids, starts),) = tokenizer.encode_with_starts([text])
    assert [piece for part, _ in parts for piece in part.tolist()] == ids.tolist() == tokenizer.encode([text])[0]
    assert [bit for _, part in parts for bit in part.tolist()] == starts.tolist()
