"""Add to a vocabulary the words that save the most pieces on a corpus, and keep every entry and id it has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.bert import MAX_WORD_CHARACTERS
from domainbert.tokenization.load import DomainTokenizer


def words_to_add(tokenizer: DomainTokenizer, words: Mapping[str, int], count: int) -> list[str]:
    """The words with the largest (pieces - 1) x occurrences: how many pieces an entry of their own saves.

    What a word saves is counted by itself: that "banks" may become shorter once "bank" is an entry does not matter.

    Args:
        tokenizer: the vocabulary to extend.
        words: how often each word occurs, normalized as the tokenizer does (`words.normalized_words`).
        count: how many words to add.

    Returns:
        The words, the most useful first; where two save as much, in the order of their characters.

    Raises:
        DomainbertError: fewer words than that are cut into more than one piece.
    """
    order = sorted(word for word in words if len(word) <= MAX_WORD_CHARACTERS)
    saved: dict[str, int] = {}
    for word, ids in zip(order, tokenizer.encode(order), strict=True):
        if len(ids) > 1 and tokenizer.unk_id not in ids:
            saved[word] = (len(ids) - 1) * words[word]
    if len(saved) < count:
        raise DomainbertError(
            f"extend: {count:,}; expected at most {len(saved):,}: the corpus has no more words in several pieces"
        )
    return sorted(saved, key=lambda word: (-saved[word], word))[:count]


def extend_tokenizer(tokenizer: DomainTokenizer, words: Sequence[str]) -> DomainTokenizer:
    """The tokenizer with words appended to its vocabulary: they get the ids after the last one.

    Raises:
        DomainbertError: it is no WordPiece tokenizer, or a word is an entry already.
    """
    if not isinstance(tokenizer.backend.model, WordPiece):
        kind = type(tokenizer.backend.model).__name__
        raise DomainbertError(f"the tokenizer is a {kind} model; only a WordPiece vocabulary can be extended")
    known = sorted(set(words).intersection(tokenizer.tokens))
    if known:
        raise DomainbertError(f"{known[0]!r} is an entry already; expected new words only")
    state = json.loads(tokenizer.backend.to_str())
    first = tokenizer.vocab_size
    state["model"]["vocab"] |= {word: first + number for number, word in enumerate(words)}
    backend = Tokenizer.from_str(json.dumps(state))
    return DomainTokenizer(backend, tokenizer.special_tokens, tokenizer.model_max_length)
