"""Compare vocabularies of any kind, by the texts and roles of their entries.

WordPiece marks pieces that continue a word ("##ing"); byte-level BPE and Unigram mark pieces that begin a word ("Ġbank"
and "▁bank").

An entry of a new vocabulary is copied if the old vocabulary has the same text in the same role (a special token: the
same role). Case follows the old vocabulary: "Bank" of a cased vocabulary matches "bank" of an uncased one, and "monday"
of an uncased one matches "monday", else "Monday", else "MONDAY" of a cased one. The role of entries without a letter or
digit is ignored, because byte-level vocabularies write "," where WordPiece begins a word. Between kinds, such a sign
and a Chinese character match "," of WordPiece and not "##,", which occurs in no text. An entry without a text, such as
part of a character, is copied between vocabularies of the same kind. Any other entry is composed of the old pieces of
its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from tokenizers import Tokenizer
from tokenizers.models import BPE

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.kind import (
    META_SPACE,
    MarkedPieces,
    Pieces,
    Surface,
    expected_kinds,
    kind_of,
    tokens_by_id,
)
from domainbert.tokenization.load import DomainTokenizer, read_backend
from domainbert.tokenization.special_tokens import TOKEN_NAMES, usual_special_tokens

OriginKind = Literal["copied", "composed", "new"]
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
        """Return a text as the vocabulary normalises it, without white space at both ends."""
        return self._pieces.fold(text)

    def starts_word(self, surface: Surface) -> bool:
        """Whether a surface starts a word in the texts of this vocabulary."""
        return self._pieces.starts_word(surface)

    def pieces(self, surface: Surface) -> list[int]:
        """Return the ids of the entries that spell a surface in its role, without [UNK] for unknown parts."""
        text = self.fold(surface.text)
        ids = self._pieces.spell(Surface(text, surface.starts_word)) if text else []
        return [piece for piece in ids if piece != self.special_ids.get("unk_token")]

    def cut(self, words: Sequence[str]) -> list[list[str]]:
        """Return the readable forms of the entries into which each word is cut in the middle of a text."""
        texts = [self._pieces.inside_text(word) for word in words]
        encodings = self.backend.encode_batch(texts, add_special_tokens=False)
        return [[self._pieces.readable(token) for token in encoding.tokens] for encoding in encodings]


def _pieces_of_marked_bpe(backend: Tokenizer, ids: Mapping[str, int]) -> Pieces:
    if isinstance(backend.model, BPE) and META_SPACE in ids:
        return MarkedPieces(backend)
    model = type(backend.model).__name__
    raise DomainbertError(f"the tokenizer is a {model} model", expected=expected_kinds("BPE with ▁ before words"))


def load_vocabulary(folder: Path) -> Vocabulary:
    """Return the vocabulary of a Hugging Face folder. Raise `DomainbertError` if the folder has no readable tokenizer
    of a kind that `Vocabulary` accepts."""
    backend, special_tokens, _ = read_backend(folder)
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True  # "[SEP]" in a text is plain text
    try:
        return Vocabulary(backend, special_tokens)
    except DomainbertError as error:
        raise error.within(file=folder) from error


def vocabulary_of(tokenizer: DomainTokenizer) -> Vocabulary:
    """Return the vocabulary of a loaded tokenizer."""
    return Vocabulary(tokenizer.backend, tokenizer.special_tokens)


class Origin(NamedTuple):
    """How an entry of the new vocabulary gets its vector, and from which entries of the old one."""

    kind: OriginKind
    pieces: tuple[int, ...]  # old ids in order: 1 if copied, 1 or more if composed, 0 if new


def origins(new: Vocabulary, old: Vocabulary, keep_role: bool = True) -> list[Origin]:
    """Return the origin of each entry of `new` in `old`, the vocabulary that has vectors.

    An entry that continues a word ("##ing") is cut like the word "ing". With `keep_role`, it is cut into continuing
    pieces instead, if possible.
    """
    index = _EntryIndex(old)
    special = {token_id: role for role, token_id in new.special_ids.items()}
    result = []
    for token_id, surface in enumerate(new.surfaces):
        if token_id in special:
            match = old.special_ids.get(special[token_id])
        elif surface is None:
            match = index.without_text.get(new.tokens[token_id]) if new.kind == old.kind else None
        else:
            if new.kind != old.kind:
                surface = surface._replace(starts_word=old.starts_word(surface))
            match = index.find(surface, new.lowercases)
        if match is not None:
            result.append(Origin("copied", (match,)))
        else:
            pieces = [] if surface is None else _spell_with_pieces(surface, old, keep_role)
            result.append(Origin("composed" if pieces else "new", tuple(pieces)))
    return result


def kind_shares(matches: Sequence[Origin]) -> dict[str, float]:
    """Return the shares of the entries that are copied, composed and new; all 0 without entries."""
    counts = Counter(origin.kind for origin in matches)
    return {kind: counts[kind] / max(len(matches), 1) for kind in get_args(OriginKind)}


class _EntryIndex:
    """Ids of the entries of the old vocabulary by surface and by text; of equal entries the lowest id."""

    def __init__(self, old: Vocabulary) -> None:
        self.old = old
        self.by_surface: dict[Surface, int] = {}
        self.by_text: dict[str, int] = {}
        self.without_text: dict[str, int] = {}  # by token: entries without a text, such as part of a character
        for token_id, surface in enumerate(old.surfaces):
            if surface is not None:  # of equal entries the first, with the lowest id
                self.by_surface.setdefault(surface, token_id)
                self.by_text.setdefault(surface.text, token_id)
            elif old.tokens[token_id]:
                self.without_text[old.tokens[token_id]] = token_id

    def find(self, surface: Surface, lowercased: bool) -> int | None:
        """Return the id of the entry with this surface; None if there is none. `lowercased` says that the surface is
        from an uncased vocabulary."""
        for text in self._spellings(surface, lowercased):
            token_id = self.by_surface.get(Surface(text, surface.starts_word))
            if token_id is None and not any(map(str.isalnum, text)):  # punctuation may start a word or not
                token_id = self.by_text.get(text)
            if token_id is not None:
                return token_id
        return None

    def _spellings(self, surface: Surface, lowercased: bool) -> Iterator[str]:
        """Yield the texts under which the old vocabulary may have the surface, the best first."""
        yield surface.text
        yield self.old.fold(surface.text)
        if lowercased and not self.old.lowercases:
            if surface.starts_word:
                yield surface.text.capitalize()
            yield surface.text.upper()


def _spell_with_pieces(surface: Surface, old: Vocabulary, keep_role: bool) -> list[int]:
    """[] if no entries spell the surface. With `keep_role`, spell it in its role (such as inside a word), if
    possible."""
    pieces = old.pieces(surface) if keep_role else []
    return pieces or old.pieces(Surface(surface.text, starts_word=True))
