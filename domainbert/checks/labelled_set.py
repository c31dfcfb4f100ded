"""View of a labelled set for the rules: its items as plain text with their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from domainbert.checks.finding import Place, place, span_with_context
from domainbert.labelled.copies import copy_key, is_short, normal_words
from domainbert.labelled.items import Labelled, PlainItem

SetName = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class CheckedSet:
    """A labelled set (one labelled file, or several) as plain texts and labels, with the places of its items.

    `index` is the position of an item in `items`.
    """

    name: SetName
    labelled: Labelled[Any]
    model_labels: tuple[str, ...] = ()
    """`labels` of the task; empty if the model has the labels of the training set."""

    @cached_property
    def items(self) -> list[PlainItem]:
        """All items, in file order."""
        return self.labelled.plain_items()

    @cached_property
    def texts(self) -> list[str]:
        """Text of each item; both texts of a pair are joined with a line break."""
        return ["\n".join(item.texts) for item in self.items]

    @cached_property
    def words(self) -> list[list[str]]:
        """Normalized words of each text, see `normal_words`."""
        return [normal_words(text) for text in self.texts]

    @cached_property
    def identities(self) -> list[Hashable]:
        """Key of each item, which is equal for copies: its normalized words, and its marks (such as marked spans)."""
        return list(map(copy_key, self.words, self.items))

    @cached_property
    def label_counts(self) -> Counter[str]:
        """Number of occurrences of each label."""
        return Counter(label for item in self.items for label in item.labels)

    @property
    def one_label_each(self) -> bool:
        """Whether each item has exactly one label for the whole text, as in classification."""
        return all(len(item.labels) == 1 and item.stretches is None for item in self.items)

    @property
    def has_span_labels(self) -> bool:
        """Whether the labels belong to spans of the text, as in NER; False for an empty set."""
        return bool(self.items) and all(item.stretches is not None for item in self.items)

    def is_short(self, index: int) -> bool:
        """Whether text `index` has fewer than 30 letters and digits, so that another text may be equal by chance."""
        return is_short(self.words[index])

    def indices_with_label(self, label: str) -> list[int]:
        """Return the indices of the items that have this label."""
        return [index for index, item in enumerate(self.items) if label in item.labels]

    def place(self, index: int, text: str | None = None) -> Place:
        """Return the file and line where item `index` begins, with `text`; None: the text of the item."""
        path, _, line = self.labelled.location(index).rpartition(":")
        return place(path, int(line), self.texts[index] if text is None else text)

    def places(self, indices: Iterable[int]) -> list[Place]:
        """Return the places of the items at `indices`."""
        return [self.place(index) for index in indices]

    def place_of_span(self, index: int, start: int, end: int) -> Place:
        """Return the place of item `index`, with characters `start` to `end` of its text and 60 characters around."""
        return self.place(index, span_with_context(self.texts[index], start, end))


def first_indices(keys: Iterable[Hashable]) -> dict[Hashable, int]:
    """Return the index of the first occurrence of each key."""
    indices: dict[Hashable, int] = {}
    for index, key in enumerate(keys):
        indices.setdefault(key, index)
    return indices


@dataclass(frozen=True)
class TwoSets:
    """Two labelled sets of a task that must not overlap: (train, validation), (train, test) or (validation, test)."""

    first: CheckedSet
    second: CheckedSet


def labelled_set_facts(data: CheckedSet) -> dict[str, Any]:
    """Return counts of items, words and labels as JSON values, for `check.json`."""
    lengths = sorted(len(text.split()) for text in data.texts)
    return {
        "items": len(lengths),
        "words": sum(lengths),
        "words_of_an_item": {"median": lengths[len(lengths) // 2], "longest": lengths[-1]},
        "labels": dict(sorted(data.label_counts.items())),
    }
