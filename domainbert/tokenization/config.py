"""The base of every kind of vocabulary in a YAML. Free of torch, and of `tokenizers`.

To add a kind: a folder with a `config.py`, which holds a frozen dataclass that inherits `TokenizerKindConfig`, and the
`TokenizerKind` itself in a `kind.py` beside it, which `build` imports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from domainbert.tokenization.kind import TokenizerKind


@dataclass(frozen=True)
class TokenizerKindConfig(ABC):
    """A kind of vocabulary; every setting it has needs a default, by which folders are read."""

    entry_point_group = "domainbert.tokenizers"
    """Where installed packages register kinds of their own."""

    files = Path(__file__).parent / "layouts"
    """A YAML each: a kind with the special tokens that some models have."""

    @abstractmethod
    def build(self) -> TokenizerKind:
        """The kind."""
