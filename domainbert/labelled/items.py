"""A labelled file that has been read, whatever its task."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from unicodedata import normalize

from typing_extensions import override

from domainbert.base.errors import Problems
from domainbert.corpus.file_kind import FileKind, Kind
from domainbert.labelled.contents import Content, TextPair, text_in
from domainbert.labelled.plain_items import PlainItem


class Item(Protocol):
    """A labelled text or sentence."""

    @property
    def line(self) -> int:
        """The line where it begins in the file, from 1."""

    @property
    def content(self) -> Content:
        """The text, words or what else a model reads."""

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


@dataclass
class Notes:
    """Counts of what a reader left out, and of values that it did not read as they stand, by names in the plural."""

    left_out: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)

    @property
    def lines(self) -> list[str]:
        """A line for each of the two that counted something."""
        named = {
            name: ", ".join(f"{n:,} {what}" for what, n in sorted(vars(self)[name].items())) for name in vars(self)
        }
        return [f"  {name.replace('_', ' ')}: {counts}" for name, counts in named.items() if counts]


@dataclass(frozen=True)
class Labelled(Generic[AnyItem]):
    """The items of a file, in its order."""

    path: Path
    items: Sequence[AnyItem]
    kind: Kind
    parts: Sequence[Labelled[AnyItem]] = field(default=(), kw_only=True)
    """The files of a set of several, one after the other; their folder is its path, and lines are those of each."""
    notes: Notes = field(default_factory=Notes, kw_only=True)

    @property
    def unit(self) -> str:
        """The name of what the bootstrap draws, in the plural."""
        return "texts"

    @property
    def unit_numbers(self) -> Sequence[int] | None:
        """For each item the number of the unit that it belongs to, from 0; None where it is one by itself."""
        return None

    @property
    def summary(self) -> str:
        """The line of `describe` on the items."""
        return f"{self.path}: {len(self.items):,} {self.unit}; {FileKind(self.kind)}"

    def describe(self) -> str:
        """Lines for a person: `summary` and `notes`."""
        return "\n".join([self.summary, *self.notes.lines])

    def units(self) -> list[Unit]:
        """The units that folds do not divide, in the order of the file: by default each item by itself."""
        return [Unit(item.line, frozenset(item.labels)) for item in self.items]

    def part(self, units: Sequence[int]) -> str | None:
        """Content of a file with some of the units, by their numbers; None where it is their lines, each unit's from
        its own to that of the next."""
        return None

    def place(self, number: int) -> str:
        """The file and the line of an item."""
        for part in self.parts:
            if number < len(part.items):
                return part.place(number)
            number -= len(part.items)
        return f"{self.path}:{self.items[number].line}"

    def where(self, number: int) -> int | str:
        """The line of an item; in a set of several files the file, too."""
        return self.place(number) if self.parts else self.items[number].line

    def plain_items(self) -> list[PlainItem]:
        """The items as checks look at them."""
        if self.parts:
            return [item for part in self.parts for item in part.plain_items()]
        return [self.plain_item(item) for item in self.items]

    def plain_item(self, item: AnyItem) -> PlainItem:
        """An item as checks look at it: its text and labels; a task says the rest."""
        content, labels = item.content, tuple(item.labels)
        texts = (content.first, content.second) if isinstance(content, TextPair) else (text_in(content),)
        return PlainItem(texts, labels, tuple(sorted(labels)))

    @property
    def contents(self) -> list[Content]:
        """The content of each item."""
        return [item.content for item in self.items]


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
    alike = {normalize("NFC", label): label for label in known}
    for label in sorted(set(found) - set(known)):
        seen = f"label {label!r} ({found[label].count:,} times, first here)"
        same = alike.get(normalize("NFC", label))
        expected = f"expected one of {', '.join(known)}" if same is None else _other_form(label, same)
        problems.add(f"{path}:{found[label].first_line}: {seen} was not in training; {expected}")
    problems.raise_if_any()


def check_forms(parts: Iterable[Labelled[Any]]) -> None:
    """`DomainbertError` if two labels of some files look the same and are different Unicode, as NFC and NFD are."""
    problems, first = Problems("labels"), dict[str, tuple[str, str]]()
    for part in parts:
        for label, found in sorted(find_labels(part.items).items(), key=lambda one: one[1].first_line):
            where = f"{part.path}:{found.first_line}"
            other, there = first.setdefault(normalize("NFC", label), (label, where))
            if other != label:
                problems.add(
                    f"{where}: label {label!r} is also written otherwise ({there}); {_other_form(label, other)}"
                )
    problems.raise_if_any()


def _other_form(label: str, other: str) -> str:
    """The code points of two labels that look the same."""
    return f"expected the same Unicode in all files, such as NFC: found {label!a} here, and {other!a} there"


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


class SentenceItem(Item, Protocol):
    """A labelled sentence."""

    @property
    def words(self) -> list[str]:
        """Its words."""

    @property
    def document(self) -> int:
        """Number of the document that holds it, from 0; each sentence its own where the file marks none."""


AnySentence = TypeVar("AnySentence", bound=SentenceItem)


@dataclass(frozen=True)
class SentenceFile(Labelled[AnySentence]):
    """Contents of a file of sentences."""

    @property
    @abstractmethod
    def marks_documents(self) -> bool:
        """Whether the file says where documents begin; of several, whether the first does."""

    @property
    def has_documents(self) -> bool:
        """Whether the file, or one of several, says where documents begin."""
        return self.marks_documents or any(getattr(part, "has_documents", False) for part in self.parts)

    @property
    @override
    def unit(self) -> str:
        return "documents" if self.has_documents else "sentences"

    @property
    @override
    def unit_numbers(self) -> list[int] | None:
        """The documents, if the file marks any."""
        if not self.has_documents:
            return None
        number = {document: place for place, document in enumerate(dict.fromkeys(one.document for one in self.items))}
        return [number[one.document] for one in self.items]

    @property
    def num_documents(self) -> int:
        """Documents, marked or not."""
        return len({sentence.document for sentence in self.items})

    @property
    def num_words(self) -> int:
        """Words of all sentences."""
        return sum(len(sentence.words) for sentence in self.items)

    @property
    def counted(self) -> str:
        """Sentences, documents and words, for a person."""
        grouped = f" in {self.num_documents:,} documents" if self.has_documents else ""
        return f"{len(self.items):,} sentences{grouped}, {self.num_words:,} words"
