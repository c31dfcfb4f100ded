"""Origins of the entries of a new vocabulary in an old one: the same entry, old pieces of it, or nothing.

An entry is copied if the old vocabulary has the same text in the same role (a special token: the same role). Case
follows the old vocabulary: "Bank" of a cased vocabulary is "bank" of an uncased one, and "monday" of an uncased one is
"monday", or else "Monday", or else "MONDAY" of a cased one. Signs without a letter or digit are the same in either
role, because byte-level vocabularies write "," where WordPiece begins a word. An entry without a text, such as a part
of a character, is copied between vocabularies of one kind. Any other entry is composed of the old pieces of its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from domainbert.tokenization.kind import Surface
from domainbert.tokenization.surfaces import Vocabulary

Kind = Literal["copied", "composed", "new"]


class Origin(NamedTuple):
    """Origin of an entry."""

    kind: Kind
    pieces: tuple[int, ...]  # old ids: one for a copy, several in order for a composition, none for a new entry


def origins(new: Vocabulary, old: Vocabulary, keep_role: bool = True) -> list[Origin]:
    """Origin of each entry of `new`, the vocabulary to fill, in `old`, the one that has vectors.

    With `keep_role` an entry that continues a word ("##ing") is cut into pieces that continue one; otherwise, and where
    those pieces do not exist, it is cut as a word of its own ("ing").
    """
    known = _Known(old)
    special = {number: role for role, number in new.special_ids.items()}
    found = []
    for number, surface in enumerate(new.surfaces):
        if number in special:
            same = old.special_ids.get(special[number])
        elif surface is None:
            same = known.parts.get(new.tokens[number]) if new.kind == old.kind else None
        else:
            same = known.find(surface, new.lowercases)
        if same is not None:
            found.append(Origin("copied", (same,)))
        else:
            pieces = () if surface is None else _compose(surface, old, keep_role)
            found.append(Origin("composed" if pieces else "new", pieces))
    return found


def kind_shares(found: Sequence[Origin]) -> dict[str, float]:
    """The share of entries of each kind."""
    counts = Counter(origin.kind for origin in found)
    return {kind: counts[kind] / max(len(found), 1) for kind in get_args(Kind)}


class _Known:
    """Finds the entry of the old vocabulary that is the same; of several, the one with the lowest id."""

    def __init__(self, old: Vocabulary) -> None:
        self.old = old
        self.by_surface: dict[Surface, int] = {}
        self.by_sign: dict[str, int] = {}
        self.parts: dict[str, int] = {}
        """Entries that are no text by themselves, such as bytes."""
        for number, surface in enumerate(old.surfaces):
            if surface is not None:
                self.by_surface.setdefault(surface, number)
                self.by_sign.setdefault(surface.text, number)
            elif old.tokens[number]:
                self.parts[old.tokens[number]] = number

    def find(self, surface: Surface, lowercased: bool) -> int | None:
        for text in self._spellings(surface, lowercased):
            number = self.by_surface.get(Surface(text, surface.starts_word))
            if number is None and not any(map(str.isalnum, text)):
                number = self.by_sign.get(text)
            if number is not None:
                return number
        return None

    def _spellings(self, surface: Surface, lowercased: bool) -> Iterator[str]:
        yield surface.text
        yield self.old.fold(surface.text)
        if lowercased and not self.old.lowercases:
            if surface.starts_word:
                yield surface.text.capitalize()
            yield surface.text.upper()


def _compose(surface: Surface, old: Vocabulary, keep_role: bool) -> tuple[int, ...]:
    pieces = old.pieces(surface) if keep_role else []
    return tuple(pieces or old.pieces(Surface(surface.text, True)))
