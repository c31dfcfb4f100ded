"""Entries of vocabularies that mark the space before a word by "▁", as sentencepiece does."""

from __future__ import annotations

from domainbert.tokenization.kind import Pieces, Surface

META_SPACE = "\u2581"  # how a space before a word is written: "▁bank"


class MarkedPieces(Pieces):
    """Pieces that begin a word begin with "▁"."""

    def surface(self, token: str) -> Surface | None:
        """See `Pieces.surface`."""
        text = token.removeprefix(META_SPACE)
        return Surface(text, token.startswith(META_SPACE)) if text else None

    def spell(self, surface: Surface) -> list[int]:
        """See `Pieces.spell`."""
        spelt = META_SPACE * surface.starts_word + surface.text
        return [token.id for token in self.backend.model.tokenize(spelt)]

    def fold(self, text: str) -> str:
        """See `Pieces.fold`."""
        return super().fold(text).removeprefix(META_SPACE)

    def inside_text(self, word: str) -> str:
        """See `Pieces.inside_text`."""
        return f" {word}"
