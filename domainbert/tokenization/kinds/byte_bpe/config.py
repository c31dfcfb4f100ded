"""Configuration of byte-level BPE. Imports neither torch nor `tokenizers`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.special_tokens import special_roles

if TYPE_CHECKING:
    from domainbert.tokenization.kind import TokenizerKind


@dataclass(frozen=True)
class ByteBPE(TokenizerKindConfig):
    """Byte-level BPE, as in RoBERTa: no text is unknown, and the space before a word belongs to its first piece.

    >>> from domainbert import ByteBPE
    >>> ByteBPE().special_tokens[0], ByteBPE().build().name
    ('<s>', 'byte-level BPE')
    """

    model = "BPE"

    special_tokens: list[str] = field(default_factory=lambda: ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    """Special tokens in the order of their ids; `...` is the position of all other entries (default: at the end)."""

    def __post_init__(self) -> None:
        """Check that each role has a token."""
        special_roles(self.special_tokens)

    @override
    def build(self) -> TokenizerKind:
        from domainbert.tokenization.kinds.byte_bpe.kind import ByteBPEKind

        return ByteBPEKind(self.special_tokens)
