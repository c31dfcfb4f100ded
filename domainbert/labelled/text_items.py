"""Items of labelled files that hold a text, or a pair of texts, each. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from typing_extensions import override

from domainbert.labelled.items import AnyItem, Labelled, TextPair


@dataclass(frozen=True)
class TextItem:
    """A text, or the two of a pair; a task adds what it is labelled with."""

    text: str
    text_pair: str | None = field(default=None, kw_only=True)
    by: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """The slices that it is in, by key."""

    @property
    def content(self) -> str | TextPair:
        """The text or pair of texts that a model reads."""
        return self.text if self.text_pair is None else TextPair(self.text, self.text_pair)

    @property
    def as_row(self) -> dict[str, str]:
        """The beginning of a row in a file of predictions."""
        return {"text": self.text} | ({} if self.text_pair is None else {"text_pair": self.text_pair})


@dataclass(frozen=True)
class TextFile(Labelled[AnyItem]):
    """Contents of a file of texts, or of pairs."""

    @property
    @override
    def unit(self) -> str:
        return "pairs of texts" if any(isinstance(item.content, TextPair) for item in self.items[:1]) else "texts"
