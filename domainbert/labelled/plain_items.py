"""A labelled item as text, labels and stretches of text: what checks look at, whatever the task."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelledStretch:
    """A stretch of the first text, in characters, and its label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class PlainItem:
    """An item as a check sees it."""

    texts: tuple[str, ...]
    """Its text, or the two of a pair; words of a list are joined by spaces."""

    labels: tuple[str, ...]
    """See `Item.labels`."""

    target: Hashable = None
    """All that is to be learnt of it: equal where two items are labelled alike."""

    marks: Hashable = None
    """Inputs that a model reads of it beside the texts, such as which places of them are marked."""

    stretches: tuple[LabelledStretch, ...] | None = None
    """The stretches that are labelled in the first text, where a task labels all of a kind; else None."""

    document: int | None = None
    """The number of its document in the file; None where items are no parts of documents."""

    document_name: str = ""
    """Identity of its document, in other files, too; empty where nothing does."""
