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
    """Old entries from which an entry takes its vector."""

    kind: Kind
    pieces: tuple[int, ...]  # old ids in order: 1 if copied, 1 or more if composed, 0 if new


def origins(new: Vocabulary, old: Vocabulary, keep_role: bool = True) -> list[Origin]:
    """Match each entry of `new` with `old`, the vocabulary that has vectors.

    With `keep_role`, an entry that continues a word ("##ing") is cut into continuing pieces if possible; otherwise it
    is cut as a word ("ing").
    """
    index = _EntryIndex(old)
    special = {number: role for role, number in new.special_ids.items()}
    matches = []
    for number, surface in enumerate(new.surfaces):
        if number in special:
            same = old.special_ids.get(special[number])
        elif surface is None:
            same = index.parts.get(new.tokens[number]) if new.kind == old.kind else None
        else:
            same = index.find(surface, new.lowercases)
        if same is not None:
            matches.append(Origin("copied", (same,)))
        else:
            pieces = () if surface is None else _compose(surface, old, keep_role)
            matches.append(Origin("composed" if pieces else "new", pieces))
    return matches


def kind_shares(matches: Sequence[Origin]) -> dict[str, float]:
    """Return the share of entries that are copied, composed and new."""
    counts = Counter(origin.kind for origin in matches)
    return {kind: counts[kind] / max(len(matches), 1) for kind in get_args(Kind)}


class _EntryIndex:
    """Entries of the old vocabulary by text; of several equal entries the lowest id."""

    def __init__(self, old: Vocabulary) -> None:
        self.old = old
        self.by_surface: dict[Surface, int] = {}
        self.by_sign: dict[str, int] = {}
        self.parts: dict[str, int] = {}
        """Entries without a text, such as bytes."""
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
