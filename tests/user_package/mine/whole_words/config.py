"""Whole words in a YAML. Free of `tokenizers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from domainbert.tokenization.config import TokenizerKindConfig

if TYPE_CHECKING:
    from domainbert.tokenization.kind import TokenizerKind


@dataclass(frozen=True)
class WholeWords(TokenizerKindConfig):
    """The most frequent strings between spaces, each an entry; all others are unknown."""

    def build(self) -> TokenizerKind:
        """See `TokenizerKindConfig.build`."""
        from mine.whole_words.kind import WholeWordsKind

        return WholeWordsKind()
