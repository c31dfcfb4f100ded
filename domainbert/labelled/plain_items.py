"""Task-independent form of a labelled item, for checks: texts, labels, stretches of text."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelledSpan:
    """A labelled stretch of the first text: character offsets, `end` exclusive."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class PlainItem:
    """An item in the form that checks read."""

    texts: tuple[str, ...]
    """Text, or the two texts of a pair; lists of words are joined by spaces."""

    labels: tuple[str, ...]
    """See `Item.labels`."""

    target: Hashable = None
    """Full annotation: equal for items with the same labels."""

    marks: Hashable = None
    """Model inputs other than the texts, such as marked spans."""

    stretches: tuple[LabelledSpan, ...] | None = None
    """Labelled stretches of the first text, if the task labels all stretches of a type; otherwise None."""

    document: int | None = None
    """Document number in the file; None if items are not parts of documents."""

    document_name: str = ""
    """Document id, unique across files; empty if unknown."""
