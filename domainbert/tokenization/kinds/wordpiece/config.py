"""Configuration of WordPiece. Imports neither torch nor `tokenizers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from domainbert.tokenization.config import TokenizerKindConfig

if TYPE_CHECKING:
    from domainbert.tokenization.kind import TokenizerKind


@dataclass(frozen=True)
class WordPiece(TokenizerKindConfig):
    """WordPiece, as in BERT: pieces that continue a word begin with "##"; a word with an unknown character is [UNK].

    >>> from domainbert import WordPiece
    >>> WordPiece(keep_accents=True).build().name
    'WordPiece'
    """

    model = "WordPiece"

    keep_accents: bool = False
    """Keep accents in a lowercase vocabulary."""

    @override
    def build(self) -> TokenizerKind:
        from domainbert.tokenization.kinds.wordpiece.kind import WordPieceKind

        return WordPieceKind(self.keep_accents)
