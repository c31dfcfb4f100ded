"""What the entries of a vocabulary stand for in text, whatever kind of vocabulary it is.

WordPiece marks pieces that continue a word ("##ing"), byte-level BPE and Unigram those that begin one ("Ġbank" and
"▁bank"). Here an entry is its text and its role, so that entries of two vocabularies can be told to be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer, normalizers
from tokenizers.models import BPE, Unigram, WordPiece

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.bert import SPECIAL_TOKENS, tokens_by_id
from domainbert.tokenization.load import DomainTokenizer, read_backend

_BYTE_SPACE, _META_SPACE = "\u0120", "\u2581"  # how a space before a word is written: "Ġbank", "▁bank"
_OTHER_NAMES = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
"""What RoBERTa and its kin call the roles."""


class Surface(NamedTuple):
    """What an entry stands for."""

    text: str
    """Its characters, without "##" or "Ġ"."""
    starts_word: bool
    """Does it begin a word, or continue one?"""


class Vocabulary:
    """A vocabulary as a list of surfaces, and how it cuts any surface into its own entries.

    Args:
        backend: a WordPiece, byte-level BPE, Unigram or other "▁"-marked tokenizer.
        special_tokens: role (`pad_token`, ...) to the token's string, as `tokenization.load.read_backend` gives it.

    Raises:
        DomainbertError: the tokenizer is of another kind.
    """

    def __init__(self, backend: Tokenizer, special_tokens: Mapping[str, str] = SPECIAL_TOKENS) -> None:
        self.backend = backend
        self.tokens = tokens_by_id(backend)
        """The entries in the order of their ids; "" where an id is not used."""
        ids = backend.get_vocab(with_added_tokens=True)
        named = {role: token if token in ids else _OTHER_NAMES[role] for role, token in special_tokens.items()}
        self.special_ids = {role: ids[token] for role, token in named.items() if token in ids}
        """Role to id, for the roles it has."""
        self._space = _space_of(backend, ids)
        self._whole = backend.model
        self._inner = _continuations(backend) or self._whole
        self._bytes = normalizers.ByteLevel() if self._space == _BYTE_SPACE else None

    @cached_property
    def surfaces(self) -> list[Surface | None]:
        """What each entry stands for; None for special tokens, unused ids and parts of a character."""
        special = set(self.special_ids.values())
        return [None if number in special else self._surface(token) for number, token in enumerate(self.tokens)]

    @cached_property
    def lowercases(self) -> bool:
        """Is it uncased?"""
        return self.fold("A") == "a"

    def fold(self, text: str) -> str:
        """The text as the vocabulary sees it: lowercased, without accents, or as it is."""
        normalizer = self.backend.normalizer
        folded = text if normalizer is None or self._bytes is not None else normalizer.normalize_str(text)
        return folded.strip().removeprefix(_META_SPACE)

    def pieces(self, surface: Surface) -> list[int]:
        """The ids of the entries that spell a surface in its role; unknown parts are left out."""
        text = self.fold(surface.text)
        if not text:
            return []
        if self._space is None:
            model = self._whole if surface.starts_word else self._inner
            found = [token.id for token in model.tokenize(text)]
        else:
            spelt = text if self._bytes is None else self._bytes.normalize_str(text)
            found = [token.id for token in self._whole.tokenize(self._space * surface.starts_word + spelt)]
        return [piece for piece in found if piece != self.special_ids.get("unk_token")]

    def cut(self, words: Sequence[str]) -> list[list[str]]:
        """The entries that each word becomes in the middle of a text, as strings."""
        texts = words if self._bytes is None else [f" {word}" for word in words]
        return [list(encoding.tokens) for encoding in self.backend.encode_batch(texts, add_special_tokens=False)]

    def _surface(self, token: str) -> Surface | None:
        if self._space is None:
            prefix = self._whole.continuing_subword_prefix
            inside = token.startswith(prefix) and len(token) > len(prefix)
            return Surface(token.removeprefix(prefix) if inside else token, not inside) if token else None
        text = token.removeprefix(self._space)
        if self._bytes is not None:
            text = _from_bytes(text)
        return Surface(text, token.startswith(self._space)) if text else None


def load_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of a Hugging Face folder, of any supported kind.

    Raises:
        DomainbertError: there is no tokenizer that can be read, or it is of another kind.
    """
    backend, special_tokens, _ = read_backend(folder)
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    try:
        return Vocabulary(backend, special_tokens)
    except DomainbertError as error:
        raise DomainbertError(f"{folder}: {error}") from error


def vocabulary_of(tokenizer: DomainTokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer that is loaded already."""
    return Vocabulary(tokenizer.backend, tokenizer.special_tokens)


def _space_of(backend: Tokenizer, ids: Mapping[str, int]) -> str | None:
    """How the space before a word is written; None for WordPiece, which marks the other pieces."""
    if isinstance(backend.model, WordPiece):
        return None
    if isinstance(backend.model, BPE) and _BYTE_SPACE in ids:
        return _BYTE_SPACE
    if isinstance(backend.model, (BPE, Unigram)) and _META_SPACE in ids:
        return _META_SPACE
    kind = type(backend.model).__name__
    raise DomainbertError(f"the tokenizer is a {kind} model; expected WordPiece, byte-level BPE, or Unigram with ▁")


def _continuations(backend: Tokenizer) -> WordPiece | None:
    """A model of the continuing pieces alone, without their prefix: it cuts the inside of a word as WordPiece does."""
    model = backend.model
    if not isinstance(model, WordPiece):
        return None
    prefix, unknown = model.continuing_subword_prefix, model.unk_token
    ids = backend.get_vocab(with_added_tokens=False)
    inner = {token.removeprefix(prefix): number for token, number in ids.items() if token.startswith(prefix)}
    inner = {token: number for token, number in inner.items() if token and token != unknown}
    if unknown in ids:
        inner[unknown] = ids[unknown]
    return WordPiece(inner, unk_token=unknown, continuing_subword_prefix="")


def _byte_characters() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (Radford et al. 2019, `bytes_to_unicode`)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_BYTE_OF = _byte_characters()


def _from_bytes(token: str) -> str:
    """The text of a byte-level entry; "" if it is a part of a character."""
    try:
        return bytes(_BYTE_OF[character] for character in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return ""
