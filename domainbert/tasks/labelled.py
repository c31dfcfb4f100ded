"""A labelled file that has been read, whatever its task. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from domainbert.base.errors import Problems
from domainbert.corpus.file_kind import FileKind, Kind

Content = str | Sequence[str]
"""A text, or a list of words."""


class Item(Protocol):
    """A labelled text or sentence."""

    @property
    def line(self) -> int:
        """The line where it begins in the file, from 1."""

    @property
    def content(self) -> Content:
        """The text or words that a model reads."""

    @property
    def labels(self) -> Sequence[str]:
        """The names of its labels that training has to know, each as often as it occurs; none of a number."""


AnyItem = TypeVar("AnyItem", bound=Item)


@dataclass(frozen=True)
class Unit:
    """A part of the file that folds do not divide: a document of sentences, or a text."""

    line: int
    """The line where it begins in the file, from 1."""
    labels: frozenset[str] = frozenset()
    """The labels that occur in it: no fold may be the only one that holds a label."""
    stratum: str = ""
    """Folds get the same share of each."""


@dataclass(frozen=True)
class Labelled(Generic[AnyItem]):
    """The items of a file, in its order."""

    path: Path
    items: Sequence[AnyItem]
    kind: Kind

    @property
    def unit(self) -> str:
        """The name of what the bootstrap draws, in the plural."""
        return "texts"

    def describe(self) -> str:
        """A line that tells what was read."""
        return f"{self.path}: {len(self.items):,} {self.unit}; {FileKind(self.kind)}"

    def units(self) -> list[Unit]:
        """The units that folds do not divide, in the order of the file: by default each item by itself."""
        return [Unit(item.line, frozenset(item.labels)) for item in self.items]

    @property
    def contents(self) -> list[Content]:
        """The texts, or words, that a model reads."""
        return [item.content for item in self.items]

    @property
    def words(self) -> list[list[str]]:
        """Of each item that has any; those of a text stand between spaces."""
        split = (item.split() if isinstance(item, str) else list(item) for item in self.contents)
        return [words for words in split if words]


def label_counts(items: Iterable[Item]) -> dict[str, int]:
    """The labels of a file, sorted, and how often each occurs."""
    return dict(sorted(Counter(label for item in items for label in item.labels).items()))


def label_set(items: Iterable[Item]) -> list[str]:
    """The sorted labels of a training set: entity types of sentences, classes of texts."""
    return list(label_counts(items))


def in_words(counts: Mapping[str, int]) -> str:
    """Labels and how often they occur, for a person: `down 1,200, up 7`."""
    return ", ".join(f"{label} {count:,}" for label, count in counts.items())


@dataclass(frozen=True)
class FoundLabel:
    """The line of the first item with a label, and how many times it occurs in all."""

    first_line: int
    count: int


def find_labels(items: Sequence[Item]) -> dict[str, FoundLabel]:
    """The labels of a file, sorted, and where they stand: all that `check_labels_known` needs of it."""
    first: dict[str, int] = {}
    for item in items:
        for label in item.labels:
            first.setdefault(label, item.line)
    return {label: FoundLabel(first[label], count) for label, count in label_counts(items).items()}


def check_labels_known(found: Mapping[str, FoundLabel], known: Iterable[str], path: Path) -> None:
    """`DomainbertError` if training never saw some labels of a file, for no model can predict them."""
    problems, known = Problems(str(path)), sorted(known)
    for label in sorted(set(found) - set(known)):
        seen = f"label {label!r} ({found[label].count:,} times, first here)"
        expected = f"expected one of {', '.join(known)}"
        problems.add(f"{path}:{found[label].first_line}: {seen} was not in training; {expected}")
    problems.raise_if_any()
