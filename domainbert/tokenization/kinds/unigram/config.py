"""Configuration of Unigram. Imports neither torch nor `tokenizers`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.special_tokens import special_roles

if TYPE_CHECKING:
    from domainbert.tokenization.kind import TokenizerKind


@dataclass(frozen=True)
class Unigram(TokenizerKindConfig):
    """Unigram, as in sentencepiece: the most probable segmentation of a word; "▁" marks the space before a word.

    >>> from domainbert import Unigram
    >>> Unigram().special_tokens[:2], Unigram().build().name
    (['<pad>', '<unk>'], 'Unigram')
    """

    model = "Unigram"

    special_tokens: list[str] = field(default_factory=lambda: ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])
    """Special tokens in the order of their ids; `...` is the position of all other entries (default: at the end)."""

    keep_accents: bool = False
    """Keep accents in a lowercase vocabulary."""

    def __post_init__(self) -> None:
        """Check that each role has a token."""
        special_roles(self.special_tokens)

    @override
    def build(self) -> TokenizerKind:
        from domainbert.tokenization.kinds.unigram.kind import UnigramKind

        return UnigramKind(self.special_tokens, self.keep_accents)
