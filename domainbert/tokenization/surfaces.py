"""Text and role of the entries of a vocabulary of any kind, so that vocabularies can be compared.

WordPiece marks pieces that continue a word ("##ing"); byte-level BPE and Unigram mark pieces that begin a word ("Ġbank"
and "▁bank").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.kind import Pieces, Surface, expected_kinds, kind_of, tokens_by_id
from domainbert.tokenization.load import DomainTokenizer, read_backend
from domainbert.tokenization.marked import META_SPACE, MarkedPieces
from domainbert.tokenization.special_tokens import TOKEN_NAMES, usual_special_tokens

_USUAL_TOKENS = {role: name for role, (_, name) in TOKEN_NAMES.items()}  # used by most vocabularies with "▁"


class Vocabulary:
    """A vocabulary of any kind as a list of surfaces, which also cuts other surfaces into its entries.

    Args:
        backend: a tokenizer of a known kind, or a BPE model that marks words with "▁".
        special_tokens: role to token, as `load.read_backend` returns them; other roles have the usual names.

    Raises:
        DomainbertError: the tokenizer is of another kind.
    """

    def __init__(self, backend: Tokenizer, special_tokens: Mapping[str, str] | None = None) -> None:
        kind = kind_of(backend)
        self.backend = backend
        self.kind = None if kind is None else kind.name  # None: BPE with "▁"
        self.tokens = tokens_by_id(backend)
        ids = backend.get_vocab(with_added_tokens=True)
        defaults = usual_special_tokens(ids, _USUAL_TOKENS) if kind is None else kind.special_tokens_of(backend)
        roles = {**defaults, **(special_tokens or {})}
        self.special_ids = {role: ids[token] for role, token in roles.items() if token in ids}
        self._pieces = _pieces_of_marked_bpe(backend, ids) if kind is None else kind.pieces(backend)

    @cached_property
    def surfaces(self) -> list[Surface | None]:
        """Text and role of each entry; None for special tokens, unused ids and parts of characters."""
        special = set(self.special_ids.values())
        return [None if index in special else self._pieces.surface(token) for index, token in enumerate(self.tokens)]

    @cached_property
    def lowercases(self) -> bool:
        """Whether the vocabulary is uncased."""
        return self.fold("A") == "a"

    def fold(self, text: str) -> str:
        """Return a text as the vocabulary normalises it, see `Pieces.fold`."""
        return self._pieces.fold(text)

    def pieces(self, surface: Surface) -> list[int]:
        """Return the ids of the entries that spell a surface in its role, unknown parts left out."""
        text = self.fold(surface.text)
        ids = self._pieces.spell(Surface(text, surface.starts_word)) if text else []
        return [piece for piece in ids if piece != self.special_ids.get("unk_token")]

    def cut(self, words: Sequence[str]) -> list[list[str]]:
        """Cut each word as in the middle of a text, and return the readable forms of its entries."""
        texts = [self._pieces.inside_text(word) for word in words]
        encodings = self.backend.encode_batch(texts, add_special_tokens=False)
        return [[self._pieces.readable(token) for token in encoding.tokens] for encoding in encodings]


def _pieces_of_marked_bpe(backend: Tokenizer, ids: Mapping[str, int]) -> Pieces:
    """Return the pieces of a BPE model that marks words with "▁"; `DomainbertError` for another model."""
    if isinstance(backend.model, BPE) and META_SPACE in ids:
        return MarkedPieces(backend)
    model = type(backend.model).__name__
    raise DomainbertError(f"the tokenizer is a {model} model; expected {expected_kinds('BPE with ▁')}")


def load_vocabulary(folder: Path) -> Vocabulary:
    """Return the vocabulary of a Hugging Face folder. Errors as in `read_backend` and `Vocabulary`."""
    backend, special_tokens, _ = read_backend(folder)
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    try:
        return Vocabulary(backend, special_tokens)
    except DomainbertError as error:
        raise DomainbertError(f"{folder}: {error}") from error


def vocabulary_of(tokenizer: DomainTokenizer) -> Vocabulary:
    """Return the vocabulary of a loaded tokenizer."""
    return Vocabulary(tokenizer.backend, tokenizer.special_tokens)
