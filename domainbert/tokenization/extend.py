"""Add to a vocabulary the words that save the most pieces on a corpus, or given tokens; every entry keeps its id."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tokenizers import AddedToken, Tokenizer

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.bert import tokens_by_id
from domainbert.tokenization.load import DomainTokenizer


def words_to_add(tokenizer: DomainTokenizer, words: Mapping[str, int], count: int) -> list[str]:
    """The `count` words with the largest (pieces - 1) x occurrences: how many pieces an entry of their own saves.

    Words are those of `TokenizerKind.cutter`, with their occurrences. What a word saves is counted by itself: that
    "banks" may become shorter once "bank" is an entry does not matter. The most useful word comes first; where two save
    as much, they stand in the order of their characters. A word that contains an added token, with
    the spaces around the word, is left out: the token is found first. An error if fewer words are cut into more than
    one piece.
    """
    known, model, has_added_token = set(tokenizer.tokens), tokenizer.backend.model, _added_tokens(tokenizer).search
    saved: dict[str, int] = {}
    for word in words:
        entry = tokenizer.kind.entry(word)
        ids = [] if entry in known or has_added_token(f" {word} ") else [piece.id for piece in model.tokenize(entry)]
        if len(ids) > 1 and tokenizer.unk_id not in ids:
            saved[word] = (len(ids) - 1) * words[word]
    if len(saved) < count:
        raise DomainbertError(
            f"extend: {count:,}; expected at most {len(saved):,}: the corpus has no more words in several pieces"
        )
    return sorted(saved, key=lambda word: (-saved[word], word))[:count]


def extend_tokenizer(tokenizer: DomainTokenizer, words: Sequence[str]) -> DomainTokenizer:
    """The tokenizer with words appended to its vocabulary, after the last id.

    Added tokens become entries of the model with their ids, because `tokenizers` numbers the others after the model's
    entries whenever it reads a file; a WordPiece may then begin a word with one that is found as a whole word only.

    Raises:
        DomainbertError: a word is an entry already, or an entry would get another id.
    """
    entries = {tokenizer.kind.entry(word): tokenizer.vocab_size + number for number, word in enumerate(words)}
    if known := sorted(entries.keys() & set(tokenizer.tokens)):
        raise DomainbertError(f"{known[0]!r} is an entry already; expected new words only")
    state = json.loads(tokenizer.copy_backend().to_str())
    tokenizer.kind.extend(tokenizer.backend, state["model"], entries)
    return _with_equal_ids(tokenizer, Tokenizer.from_str(json.dumps(state)))


def with_tokens(tokenizer: DomainTokenizer, tokens: Sequence[str]) -> DomainTokenizer:
    """The tokenizer with entries that are found in a text as they are written, before it is normalised and cut.

    Tokens that the vocabulary has already keep their ids, the others are appended after the last id. They are not
    special: a special token that is spelt out in a text is text. `DomainbertError` if an entry would get another id.
    """
    backend = tokenizer.copy_backend()
    backend.add_tokens([AddedToken(token, normalized=False) for token in tokens])
    return _with_equal_ids(tokenizer, backend)


def _added_tokens(tokenizer: DomainTokenizer) -> re.Pattern[str]:
    """Matches the added tokens that are found inside words too."""
    added = tokenizer.backend.get_added_tokens_decoder().values()
    inside = [one for one in added if one.content.strip() and not (one.special or one.single_word)]
    texts = (tokenizer.pieces.fold(one.content) if one.normalized else one.content for one in inside)
    return re.compile("|".join(map(re.escape, filter(None, texts))) or r"(?!)")


def _with_equal_ids(tokenizer: DomainTokenizer, backend: Tokenizer) -> DomainTokenizer:
    """The extended tokenizer; `DomainbertError` unless each entry of `tokenizer` has its id in `backend`."""
    extended = tokens_by_id(backend)[: tokenizer.vocab_size]
    for number, (token, found) in enumerate(zip_longest(tokenizer.tokens, extended, fillvalue="")):
        if token != found:
            expected = repr(token) if token else "a vocabulary whose ids have no gaps"
            raise DomainbertError(f"extending the vocabulary gives id {number} to {found!r}; expected {expected}")
    return DomainTokenizer(backend, tokenizer.special_tokens, tokenizer.model_max_length)
