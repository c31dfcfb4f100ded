"""Entries of vocabularies that mark the space before a word by "▁", as sentencepiece does."""

from __future__ import annotations

from typing_extensions import override

from domainbert.tokenization.kind import Pieces, Surface

META_SPACE = "\u2581"  # how a space before a word is written: "▁bank"


class MarkedPieces(Pieces):
    """Pieces that begin a word begin with "▁"."""

    @override
    def surface(self, token: str) -> Surface | None:
        text = token.removeprefix(META_SPACE)
        return Surface(text, token.startswith(META_SPACE)) if text else None

    @override
    def spell(self, surface: Surface) -> list[int]:
        spelt = META_SPACE * surface.starts_word + surface.text
        return [token.id for token in self.backend.model.tokenize(spelt)]

    @override
    def fold(self, text: str) -> str:
        return super().fold(text).removeprefix(META_SPACE)

    @override
    def inside_text(self, word: str) -> str:
        return f" {word}"
