"""A labelled set as rules look at it: its items as plain text, each with its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from domainbert.checks.finding import Place, place
from domainbert.tasks.labelled import Labelled
from domainbert.tasks.plain_items import PlainItem


@dataclass(frozen=True)
class CheckedSet:
    """A labelled set that has been read."""

    name: str
    """train, validation or test."""
    labelled: Labelled[Any]

    @cached_property
    def items(self) -> list[PlainItem]:
        """The items, in the order of the file."""
        return self.labelled.plain_items()

    @cached_property
    def texts(self) -> list[str]:
        """The text of each item; the two of a pair with a line break between them."""
        return ["\n".join(item.texts) for item in self.items]

    @cached_property
    def label_counts(self) -> Counter[str]:
        """How often each label occurs."""
        return Counter(label for item in self.items for label in item.labels)

    @cached_property
    def _starts(self) -> list[tuple[Path, int]]:
        parts = self.labelled.parts or [self.labelled]
        return [(part.path, item.line) for part in parts for item in part.items]

    def place(self, number: int, text: str | None = None) -> Place:
        """Where an item begins, with its own text or another one."""
        path, line = self._starts[number]
        return place(path, line, self.texts[number] if text is None else text)

    def places(self, numbers: Iterable[int]) -> list[Place]:
        """The places of items."""
        return [self.place(number) for number in numbers]


@dataclass(frozen=True)
class TwoSets:
    """The training set, and one that has to be apart from it."""

    train: CheckedSet
    other: CheckedSet


def facts(one: CheckedSet) -> dict[str, Any]:
    """Counts of a set for `check.json`."""
    lengths: Sequence[int] = sorted(len(text.split()) for text in one.texts)
    middle = lengths[len(lengths) // 2] if lengths else 0
    return {
        "items": len(one.items),
        "words": sum(lengths),
        "words_per_item": {"median": middle, "longest": max(lengths, default=0)},
        "labels": dict(sorted(one.label_counts.items())),
    }
