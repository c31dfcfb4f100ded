"""Match the entries of a new vocabulary with an old one: copied, composed of old pieces, or new.

An entry is copied if the old vocabulary has the same text in the same role (a special token: the same role). Case
follows the old vocabulary: "Bank" of a cased vocabulary matches "bank" of an uncased one, and "monday" of an uncased
one matches "monday", else "Monday", else "MONDAY" of a cased one. The role of entries without a letter or digit is
ignored, because byte-level vocabularies write "," where WordPiece begins a word. An entry without a text, such as part
of a character, is copied between vocabularies of the same kind. Any other entry is composed of the old pieces of its
text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from domainbert.tokenization.kind import Surface
from domainbert.tokenization.surfaces import Vocabulary

Kind = Literal["copied", "composed", "new"]


class Origin(NamedTuple):
    """How an entry of the new vocabulary gets its vector, and from which entries of the old one."""

    kind: Kind
    pieces: tuple[int, ...]  # old ids in order: 1 if copied, 1 or more if composed, 0 if new


def origins(new: Vocabulary, old: Vocabulary, keep_role: bool = True) -> list[Origin]:
    """Return the origin of each entry of `new` in `old`, the vocabulary that has vectors.

    With `keep_role`, an entry that continues a word ("##ing") is cut into continuing pieces if possible; otherwise it
    is cut as a word ("ing").
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
            match = index.find(surface, new.lowercases)
        if match is not None:
            result.append(Origin("copied", (match,)))
        else:
            pieces = () if surface is None else _spell_with_pieces(surface, old, keep_role)
            result.append(Origin("composed" if pieces else "new", pieces))
    return result


def kind_shares(matches: Sequence[Origin]) -> dict[str, float]:
    """Return the shares of the entries that are copied, composed and new; all 0 without entries."""
    counts = Counter(origin.kind for origin in matches)
    return {kind: counts[kind] / max(len(matches), 1) for kind in get_args(Kind)}


class _EntryIndex:
    """Ids of the entries of the old vocabulary by surface and by text; of equal entries the lowest id."""

    def __init__(self, old: Vocabulary) -> None:
        self.old = old
        self.by_surface: dict[Surface, int] = {}
        self.by_text: dict[str, int] = {}
        self.without_text: dict[str, int] = {}
        """Entries without a text, such as part of a character, by token."""
        for token_id, surface in enumerate(old.surfaces):
            if surface is not None:
                self.by_surface.setdefault(surface, token_id)
                self.by_text.setdefault(surface.text, token_id)
            elif old.tokens[token_id]:
                self.without_text[old.tokens[token_id]] = token_id

    def find(self, surface: Surface, lowercased: bool) -> int | None:
        """Return the id of the entry with this surface, or None; `lowercased`: it is from an uncased vocabulary."""
        for text in self._spellings(surface, lowercased):
            token_id = self.by_surface.get(Surface(text, surface.starts_word))
            if token_id is None and not any(map(str.isalnum, text)):  # the role of a sign is ignored
                token_id = self.by_text.get(text)
            if token_id is not None:
                return token_id
        return None

    def _spellings(self, surface: Surface, lowercased: bool) -> Iterator[str]:
        yield surface.text
        yield self.old.fold(surface.text)
        if lowercased and not self.old.lowercases:
            if surface.starts_word:
                yield surface.text.capitalize()
            yield surface.text.upper()


def _spell_with_pieces(surface: Surface, old: Vocabulary, keep_role: bool) -> tuple[int, ...]:
    """Return the ids of the old entries that spell a surface; () if there are none."""
    pieces = old.pieces(surface) if keep_role else []
    return tuple(pieces or old.pieces(Surface(surface.text, True)))
