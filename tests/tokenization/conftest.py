from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from domainbert.tokenization.kinds.wordpiece.kind import SPECIAL_TOKENS, bert_backend
from domainbert.tokenization.load import DomainTokenizer

_WORDS = [
    "the",
    "men",
    "'",
    "s",
    "token",
    "##ization",
    "##s",
    "bank",
    "caf",
    "##e",
    "cafe",
    "[",
    "]",
    "mask",
    "中",
    "##☃",
]


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., DomainTokenizer]:
    """Builds a tokenizer over the five special tokens and the given pieces."""

    def make(pieces: Sequence[str] = _WORDS, lowercase: bool = True) -> DomainTokenizer:
        vocab = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *pieces])}
        return DomainTokenizer(bert_backend(vocab, {"do_lower_case": lowercase}), model_max_length=64)

    return make
