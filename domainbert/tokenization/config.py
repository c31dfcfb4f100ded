"""Base class of the configuration of a kind of vocabulary. Imports neither torch nor `tokenizers`.

To add a kind, add a folder with a `config.py` (a frozen dataclass that inherits from `TokenizerKindConfig`) and a
`kind.py` (the `TokenizerKind`, which `build` imports).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from domainbert.tokenization.kind import TokenizerKind


@dataclass(frozen=True)
class TokenizerKindConfig(ABC):
    """A kind of vocabulary. Every setting needs a default: folders of vocabularies are read with the defaults."""

    entry_point_group = "domainbert.tokenizers"
    """Entry point group in which installed packages register their kinds."""

    files = Path(__file__).parent / "layouts"
    """Folder of YAML files, each a kind with the special tokens of a family of models."""

    model: ClassVar[str | None] = None
    """Class in `tokenizers.models` of the tokenizers of this kind; None: `TokenizerKind.accepts` compares all."""

    @abstractmethod
    def build(self) -> TokenizerKind:
        """Return the kind of vocabulary with these settings."""
