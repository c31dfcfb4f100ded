"""WordPiece in a YAML. Free of torch, and of `tokenizers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from domainbert.tokenization.config import TokenizerKindConfig

if TYPE_CHECKING:
    from domainbert.tokenization.kind import TokenizerKind


@dataclass(frozen=True)
class WordPiece(TokenizerKindConfig):
    """BERT's: pieces that continue a word begin with "##", and a word with an unknown character is [UNK]."""

    def build(self) -> TokenizerKind:
        """See `TokenizerKindConfig.build`."""
        from domainbert.tokenization.kinds.wordpiece.kind import WordPieceKind

        return WordPieceKind()
