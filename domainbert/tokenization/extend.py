"""Extend a vocabulary with the words that save the most pieces on a corpus, or with given tokens. Ids never change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tokenizers import AddedToken, Tokenizer

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.kind import tokens_by_id
from domainbert.tokenization.load import DomainTokenizer


def words_to_add(tokenizer: DomainTokenizer, words: Mapping[str, int], count: int) -> list[str]:
    """Return the `count` words that would save the most pieces as entries of the vocabulary: (pieces - 1) x
    occurrences.

    `words` maps words of `TokenizerKind.word_splitter` to occurrences. Each word is scored alone: adding "bank" does
    not change the score of "banks". The result is sorted by pieces saved, then by the word. Excluded are words with
    [UNK] among their pieces, and words that contain an added token (spaces around the word included), because the added
    token is matched first.

    Raises:
        DomainbertError: fewer than `count` words are cut into more than one piece.
    """
    entries, model = set(tokenizer.tokens), tokenizer.backend.model
    has_added_token = _added_token_pattern(tokenizer).search
    saved: dict[str, int] = {}  # pieces that a word would save
    for word in words:
        entry = tokenizer.kind.entry(word)
        if entry in entries or has_added_token(f" {word} "):
            continue
        ids = [piece.id for piece in model.tokenize(entry)]
        if len(ids) > 1 and tokenizer.unk_id not in ids:
            saved[word] = (len(ids) - 1) * words[word]
    if len(saved) < count:
        limit = f"{len(saved):,}, the number of words of the corpus that are cut into several pieces"
        raise DomainbertError(where="extend", found=f"{count:,}", expected=f"at most {limit} (or more text)")
    return sorted(saved, key=lambda word: (-saved[word], word))[:count]


def extend_tokenizer(tokenizer: DomainTokenizer, words: Sequence[str]) -> DomainTokenizer:
    """Return a tokenizer with words appended to the vocabulary, after the last id.

    `tokenizers` numbers added tokens after the entries of the model, so new entries would move earlier added tokens. To
    keep their ids, these tokens become entries of the model, too. WordPiece may then begin a word with an added token
    that was matched only as a whole word before.

    Raises:
        DomainbertError: a word is an entry already, or the id of an entry would change.
    """
    new_ids = {tokenizer.kind.entry(word): tokenizer.vocab_size + index for index, word in enumerate(words)}
    existing = sorted(new_ids.keys() & set(tokenizer.tokens))
    if existing:
        raise DomainbertError(f"{existing[0]!r} is in the vocabulary already", expected="only new words")
    content = json.loads(tokenizer.copy_backend().to_str())  # of tokenizer.json
    tokenizer.kind.extend(tokenizer.backend, content["model"], new_ids)  # adds the entries in place
    return _checked_extension(tokenizer, Tokenizer.from_str(json.dumps(content)))


def with_tokens(tokenizer: DomainTokenizer, tokens: Sequence[str]) -> DomainTokenizer:
    """Return a tokenizer with tokens added that are matched in the raw text, before normalisation and pre-tokenization.

    Tokens that the vocabulary has already keep their ids; new tokens are appended after the last id. The tokens are not
    added as special tokens, because special tokens are not matched in texts. Raise `DomainbertError` if an id would
    change.
    """
    backend = tokenizer.copy_backend()
    backend.add_tokens([AddedToken(token, normalized=False) for token in tokens])
    return _checked_extension(tokenizer, backend)


def _added_token_pattern(tokenizer: DomainTokenizer) -> re.Pattern[str]:
    """Return a pattern of the added tokens that `tokenizers` also matches inside words; without such tokens, it matches
    nothing."""
    tokens = tokenizer.backend.get_added_tokens_decoder().values()
    inside = [token for token in tokens if token.content.strip() and not (token.special or token.single_word)]
    texts = (tokenizer.pieces.fold(token.content) if token.normalized else token.content for token in inside)
    matches_nothing = r"(?!)"
    return re.compile("|".join(map(re.escape, filter(None, texts))) or matches_nothing)


def _checked_extension(tokenizer: DomainTokenizer, backend: Tokenizer) -> DomainTokenizer:
    """Check that `backend`, an extension of `tokenizer`, keeps its ids."""
    # a gap in the ids of `tokenizer` is "" in `tokenizer.tokens`; `backend` has filled it, and may have fewer ids
    new_tokens = tokens_by_id(backend)[: tokenizer.vocab_size]
    for token_id, (old_token, new_token) in enumerate(zip_longest(tokenizer.tokens, new_tokens, fillvalue="")):
        if old_token != new_token:
            if not old_token:
                raise DomainbertError(
                    f"the ids of the vocabulary have a gap at {token_id}", where="extend", expected="ids without gaps"
                )
            found = f"the new vocabulary has {new_token!r} as id {token_id}"
            raise DomainbertError(found, where="extend", expected=repr(old_token))
    return DomainTokenizer(backend, tokenizer.special_tokens, tokenizer.model_max_length)
