"""BERT's tokenizer: special tokens, normalizer and pre-tokenizer for a WordPiece vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from domainbert.base.errors import HALF_SURROGATE, DomainbertError
from domainbert.tokenization.special_tokens import TOKEN_NAMES

SPECIAL_TOKENS = {role: name for role, (name, _) in TOKEN_NAMES.items()}  # role -> token, in the order of the ids 0-4
PREFIX = "##"  # of a piece that continues a word
MAX_WORD_CHARACTERS = 100  # a longer word becomes [UNK], in BERT and in transformers


def bert_backend(
    vocab: Mapping[str, int], config: Mapping[str, Any], special_tokens: Mapping[str, str] = SPECIAL_TOKENS
) -> Tokenizer:
    """Build a BERT WordPiece tokenizer from a vocabulary (piece to id).

    `config` has keys of `tokenizer_config.json`: `do_lower_case` (default true), `strip_accents` (default: as
    `do_lower_case`) and `tokenize_chinese_chars` (default true).
    """
    options: dict[str, Any] = {"max_input_chars_per_word": MAX_WORD_CHARACTERS, "continuing_subword_prefix": PREFIX}
    backend = Tokenizer(WordPiece(dict(vocab), unk_token=special_tokens["unk_token"], **options))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    present = [token for token in special_tokens.values() if token in vocab]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in present])
    return backend


def tokens_by_id(backend: Tokenizer) -> list[str]:
    """Return the vocabulary, added tokens included, in the order of its ids; "" for an unused id."""
    tokens = {token_id: token for token, token_id in backend.get_vocab(with_added_tokens=True).items()}
    return [tokens.get(token_id, "") for token_id in range(max(tokens, default=-1) + 1)]


def encode_text(text: str) -> bytes:
    """Return a text as UTF-8; `DomainbertError` for an unpaired surrogate (JSON's "\\ud800"), which `tokenizers`
    rejects."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        excerpt = ascii(text[max(error.start - 20, 0) : error.start + 20])
        raise DomainbertError(f"the text {excerpt} {HALF_SURROGATE}") from error
