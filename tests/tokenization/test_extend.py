from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.extend import extend_tokenizer, words_to_add
from domainbert.tokenization.load import DomainTokenizer, load_tokenizer

Make = Callable[..., DomainTokenizer]
PIECES = ["bank", "##s", "##er", "loan"]


def test_the_words_that_save_most_pieces(make_tokenizer: Make) -> None:
    words = {"banks": 3, "bankers": 2, "bank": 100, "loans": 4, "unheard": 50, "bankss": 1, "bank" + "s" * 97: 9}
    assert words_to_add(make_tokenizer(PIECES), words, 3) == ["bankers", "loans", "banks"]
    assert words_to_add(make_tokenizer(PIECES), words, 4)[3:] == ["bankss"]
    with pytest.raises(
        DomainbertError, match=r"extend: 5; expected at most 4: the corpus has no more words in several"
    ):
        words_to_add(make_tokenizer(PIECES), words, 5)


def test_old_entries_and_ids_stay(make_tokenizer: Make, tmp_path: Path) -> None:
    old = make_tokenizer(PIECES)
    new = extend_tokenizer(old, ["bankers", "loans"])
    assert new.tokens == [*old.tokens, "bankers", "loans"]
    assert (new.special_tokens, new.model_max_length) == (old.special_tokens, old.model_max_length)
    text = "The Bankers loaned banks loans"
    assert new.encode([text]) == [[1, 9, 1, 5, 6, 10]]
    assert old.encode(["bank loan"]) == new.encode(["bank loan"])
    new.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == new.fingerprint
    with pytest.raises(DomainbertError, match="'bank' is an entry already; expected new words only"):
        extend_tokenizer(old, ["x", "bank"])
