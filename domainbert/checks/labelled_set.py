"""A labelled set as rules look at it: its items as plain text, each with its place."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from domainbert.checks.finding import Place, place
from domainbert.labelled.items import Labelled
from domainbert.labelled.plain_items import PlainItem

SetName = Literal["train", "validation", "test"]

_WORD = re.compile(r"\w+")
_AROUND = 60  # characters beside a stretch that is shown


def normal_words(text: str) -> list[str]:
    """The words of a text without what copies of it differ in: case, punctuation, white space, forms of characters.

    >>> normal_words("A Naïve\u00a0copy, (2019)!")
    ['a', 'naïve', 'copy', '2019']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


@dataclass(frozen=True)
class CheckedSet:
    """A labelled set that has been read."""

    name: SetName
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
    def words(self) -> list[list[str]]:
        """The normal words of each text."""
        return [normal_words(text) for text in self.texts]

    @cached_property
    def identities(self) -> list[Hashable]:
        """For each item what is the same of two copies of it."""
        return [(" ".join(words), item.marks) for words, item in zip(self.words, self.items, strict=True)]

    @cached_property
    def label_counts(self) -> Counter[str]:
        """The number of times that each label occurs."""
        return Counter(label for item in self.items for label in item.labels)

    @property
    def one_label_each(self) -> bool:
        """Whether each item as a whole has one label, as classes are."""
        return all(len(item.labels) == 1 and item.stretches is None for item in self.items)

    @property
    def labels_stretches(self) -> bool:
        """Whether labels are those of stretches of the text."""
        return bool(self.items) and all(item.stretches is not None for item in self.items)

    @cached_property
    def _starts(self) -> list[tuple[Path, int]]:
        parts = self.labelled.parts or [self.labelled]
        return [(part.path, item.line) for part in parts for item in part.items]

    def place(self, number: int, text: str | None = None) -> Place:
        """The place where an item begins, with its own text or another one."""
        path, line = self._starts[number]
        return place(path, line, self.texts[number] if text is None else text)

    def places(self, numbers: Iterable[int]) -> list[Place]:
        """The places of items."""
        return [self.place(number) for number in numbers]

    def place_of_stretch(self, number: int, start: int, end: int) -> Place:
        """The place of an item, with a stretch of it and some text around."""
        text = self.texts[number]
        around = text[max(0, start - _AROUND) : end + _AROUND]
        return self.place(number, f"{text[start:end]!r} in: {around}")


@dataclass(frozen=True)
class TwoSets:
    """Two labelled sets of a task that have to be apart: train or validation, and one that comes after it."""

    first: CheckedSet
    second: CheckedSet

    @property
    def names(self) -> tuple[SetName, SetName]:
        """Their names."""
        return self.first.name, self.second.name


def facts(one: CheckedSet) -> dict[str, Any]:
    """Counts of a set, for `check.json`."""
    lengths = sorted(len(text.split()) for text in one.texts)
    return {
        "items": len(lengths),
        "words": sum(lengths),
        "words_of_an_item": {"median": lengths[len(lengths) // 2], "longest": lengths[-1]},
        "labels": dict(sorted(one.label_counts.items())),
    }
