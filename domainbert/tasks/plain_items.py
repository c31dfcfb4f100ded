"""A labelled item as text, labels and stretches of text: what checks look at, whatever the task. Free of torch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate


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

    key: Hashable
    """All that a model reads of it: equal where a model cannot tell two items apart."""

    target: Hashable = None
    """All that is to be learnt of it, equal where two items are labelled alike; None where the task does not say."""

    stretches: tuple[LabelledStretch, ...] | None = None
    """What is marked in the first text, where a task marks all that there is of it (entities); else None."""

    document: str | None = None
    """The document that holds it, where the file names one or the text itself is shared by several items."""

    by: Mapping[str, str] = field(default_factory=dict)
    """The slices that it is in, by key."""


def joined_words(
    words: Sequence[str], spans: Sequence[tuple[int, int, str]]
) -> tuple[str, tuple[LabelledStretch, ...]]:
    """Words as a text with a space between them, and spans `(first word, end, label)` as stretches of it.

    >>> joined_words(["high", "growth", "rates"], [(1, 3, "x")])
    ('high growth rates', (LabelledStretch(start=5, end=17, label='x'),))
    """
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    return " ".join(words), tuple(LabelledStretch(starts[first], starts[end] - 1, label) for first, end, label in spans)
