"""Vocabularies that mark the space before a word with "▁", as sentencepiece does."""

from __future__ import annotations

from typing_extensions import override

from domainbert.tokenization.kind import Pieces, Surface

META_SPACE = "\u2581"  # replaces the space before a word: "▁bank"


class MarkedPieces(Pieces):
    """Entries of a vocabulary in which entries that begin a word begin with "▁"."""

    @override
    def surface(self, token: str) -> Surface | None:
        text = token.removeprefix(META_SPACE)
        return Surface(text, token.startswith(META_SPACE)) if text else None

    @override
    def spell(self, surface: Surface) -> list[int]:
        return [token.id for token in self.backend.model.tokenize(META_SPACE * surface.starts_word + surface.text)]

    @override
    def fold(self, text: str) -> str:
        return super().fold(text).removeprefix(META_SPACE)

    @override
    def inside_text(self, word: str) -> str:
        return f" {word}"
