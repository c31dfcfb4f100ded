"""Add to a vocabulary the words that save the most pieces on a corpus, or given tokens; every entry keeps its id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tokenizers import AddedToken, Tokenizer

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.load import DomainTokenizer


def words_to_add(tokenizer: DomainTokenizer, words: Mapping[str, int], count: int) -> list[str]:
    """The `count` words with the largest (pieces - 1) x occurrences: how many pieces an entry of their own saves.

    Words are those of `TokenizerKind.cutter`, with their occurrences. What a word saves is counted by itself: that
    "banks" may become shorter once "bank" is an entry does not matter. The most useful word comes first; where two save
    as much, they stand in the order of their characters. An error if fewer are cut into more than one piece.
    """
    known, model = set(tokenizer.tokens), tokenizer.backend.model
    saved: dict[str, int] = {}
    for word in words:
        entry = tokenizer.kind.entry(word)
        ids = [] if entry in known else [piece.id for piece in model.tokenize(entry)]
        if len(ids) > 1 and tokenizer.unk_id not in ids:
            saved[word] = (len(ids) - 1) * words[word]
    if len(saved) < count:
        raise DomainbertError(
            f"extend: {count:,}; expected at most {len(saved):,}: the corpus has no more words in several pieces"
        )
    return sorted(saved, key=lambda word: (-saved[word], word))[:count]


def extend_tokenizer(tokenizer: DomainTokenizer, words: Sequence[str]) -> DomainTokenizer:
    """The tokenizer with words appended to its vocabulary, after the last id; an error if one is an entry already."""
    entries = {tokenizer.kind.entry(word): tokenizer.vocab_size + number for number, word in enumerate(words)}
    if known := sorted(entries.keys() & set(tokenizer.tokens)):
        raise DomainbertError(f"{known[0]!r} is an entry already; expected new words only")
    state = json.loads(tokenizer.backend.to_str())
    tokenizer.kind.extend(tokenizer.backend, state["model"], entries)
    backend = Tokenizer.from_str(json.dumps(state))
    return DomainTokenizer(backend, tokenizer.special_tokens, tokenizer.model_max_length)


def with_tokens(tokenizer: DomainTokenizer, tokens: Sequence[str]) -> DomainTokenizer:
    """The tokenizer with entries that are found in a text as they are written, before it is normalised and cut.

    Those it has already keep their ids, the others are appended after the last id. They are not special: a special
    token that is spelt out in a text is text.
    """
    backend = Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_tokens([AddedToken(token, normalized=False) for token in tokens])
    found = DomainTokenizer(backend, tokenizer.special_tokens, tokenizer.model_max_length)
    if tokenizer.tokens != found.tokens[: tokenizer.vocab_size]:
        raise DomainbertError("the ids of the vocabulary have gaps; expected one that tokens can be appended to")
    return found
