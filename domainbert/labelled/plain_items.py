"""Task-independent form of a labelled item, for checks: texts, labels, character ranges."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelledSpan:
    """A labelled character range of the first text, `end` exclusive."""

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
    """Complete annotation, to compare items: equal for items with the same annotation."""

    marks: Hashable = None
    """Model inputs other than the texts, such as marked spans."""

    stretches: tuple[LabelledSpan, ...] | None = None
    """Labelled character ranges of the first text; None if the task does not label all ranges of a type, as in Ner."""

    document: int | None = None
    """Index of the document in the file; None if items are not parts of documents."""

    document_name: str = ""
    """Document id, unique across files; empty if unknown."""
