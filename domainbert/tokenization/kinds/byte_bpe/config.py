"""Byte-level BPE in a YAML. Free of torch, and of `tokenizers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from domainbert.tokenization.config import TokenizerKindConfig

if TYPE_CHECKING:
    from domainbert.tokenization.kind import TokenizerKind


@dataclass(frozen=True)
class ByteBPE(TokenizerKindConfig):
    """RoBERTa's: merges of bytes, so that nothing is ever unknown; the space before a word belongs to its piece."""

    def build(self) -> TokenizerKind:
        """See `TokenizerKindConfig.build`."""
        from domainbert.tokenization.kinds.byte_bpe.kind import ByteBPEKind

        return ByteBPEKind()
