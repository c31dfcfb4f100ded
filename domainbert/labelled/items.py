"""Items of a labelled file, independent of the task."""

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
        """First line in the file, from 1."""

    @property
    def content(self) -> Content:
        """Input of the model: text, words or another content."""

    @property
    def labels(self) -> Sequence[str]:
        """Names of the labels, with repetitions, that must occur in training; empty if the label is a number."""


AnyItem = TypeVar("AnyItem", bound=Item)


@dataclass(frozen=True)
class Unit:
    """A part of the file that folds do not divide: a document of sentences, or a text."""

    line: int
    """First line in the file, from 1."""
    labels: frozenset[str] = frozenset()
    """Labels of the unit; each label must occur in more than one fold."""
    stratum: str = ""
    """Class by which folds are stratified."""


@dataclass
class ReaderCounts:
    """Counts of the things that a reader left out and of the values that it changed, by plural names."""

    left_out: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)

    @property
    def lines(self) -> list[str]:
        """A line for each non-empty counter."""
        return [
            f"  {name.replace('_', ' ')}: {', '.join(f'{n:,} {what}' for what, n in sorted(counts.items()))}"
            for name, counts in vars(self).items()
            if counts
        ]


@dataclass(frozen=True)
class Labelled(Generic[AnyItem]):
    """Items of a file, in file order."""

    path: Path
    items: Sequence[AnyItem]
    kind: Kind
    parts: Sequence[Labelled[AnyItem]] = field(default=(), kw_only=True)
    """Files of a set; `path` is then their common folder, and line numbers refer to each file."""
    notes: ReaderCounts = field(default_factory=ReaderCounts, kw_only=True)

    @property
    def unit(self) -> str:
        """Plural name of the resampling unit of the bootstrap."""
        return "texts"

    @property
    def unit_ids(self) -> Sequence[int] | None:
        """Number of the resampling unit of each item, from 0; None if each item is a unit."""
        return None

    @property
    def summary(self) -> str:
        """Number of items and file format, as the first line of `describe`."""
        return f"{self.path}: {len(self.items):,} {self.unit}; {FileKind(self.kind)}"

    def describe(self) -> str:
        """Lines for the terminal: `summary` and `notes`."""
        return "\n".join([self.summary, *self.notes.lines])

    def units(self) -> list[Unit]:
        """Units that folds do not divide, in file order; by default each item is a unit."""
        return [Unit(item.line, frozenset(item.labels)) for item in self.items]

    def part(self, units: Sequence[int]) -> str | None:
        """Content of a file with only these units; None if it consists of their lines, each from `Unit.line` to the
        next unit."""
        return None

    def place(self, number: int) -> str:
        """Return `path:line` of an item."""
        for part in self.parts:
            if number < len(part.items):
                return part.place(number)
            number -= len(part.items)
        return f"{self.path}:{self.items[number].line}"

    def where(self, number: int) -> int | str:
        """Line of an item; `path:line` in a set of several files."""
        return self.place(number) if self.parts else self.items[number].line

    def plain_items(self) -> list[PlainItem]:
        """Convert the items for checks."""
        if self.parts:
            return [item for part in self.parts for item in part.plain_items()]
        return [self.plain_item(item) for item in self.items]

    def plain_item(self, item: AnyItem) -> PlainItem:
        """Convert an item for checks: text and labels; tasks override it to add more."""
        content, labels = item.content, tuple(item.labels)
        texts = (content.first, content.second) if isinstance(content, TextPair) else (text_in(content),)
        return PlainItem(texts, labels, tuple(sorted(labels)))

    @property
    def contents(self) -> list[Content]:
        """Model input of each item."""
        return [item.content for item in self.items]


def label_counts(items: Iterable[Item]) -> dict[str, int]:
    """Count each label, sorted by label."""
    return dict(sorted(Counter(label for item in items for label in item.labels).items()))


def label_set(items: Iterable[Item]) -> list[str]:
    """Sorted labels of a training set: entity types of sentences, classes of texts."""
    return list(label_counts(items))


def format_counts(counts: Mapping[str, int]) -> str:
    """Format label counts for the terminal: `down 1,200, up 7`."""
    return ", ".join(f"{label} {count:,}" for label, count in counts.items())


@dataclass(frozen=True)
class FoundLabel:
    """Line of the first item with a label, and the total count of the label."""

    first_line: int
    count: int


def find_labels(items: Sequence[Item]) -> dict[str, FoundLabel]:
    """Map each label of a file, sorted, to its first line and count, for `check_labels_known`."""
    first = {label: item.line for item in reversed(items) for label in item.labels}
    return {label: FoundLabel(first[label], count) for label, count in label_counts(items).items()}


def check_labels_known(labels: Mapping[str, FoundLabel], known: Iterable[str], path: Path) -> None:
    """Raise `DomainbertError` if a file has labels that are not in training: the model cannot predict them."""
    problems, known = Problems(str(path)), sorted(known)
    by_nfc = {normalize("NFC", label): label for label in known}
    for label in sorted(set(labels) - set(known)):
        seen = f"label {label!r} ({labels[label].count:,} times, first here)"
        same = by_nfc.get(normalize("NFC", label))
        expected = f"expected one of {', '.join(known)}" if same is None else _other_form(label, same)
        problems.add(f"{path}:{labels[label].first_line}: {seen} was not in training; {expected}")
    problems.raise_if_any()


def check_forms(parts: Iterable[Labelled[Any]]) -> None:
    """Raise `DomainbertError` if two labels differ only by Unicode normalization, such as NFC and NFD."""
    problems, first = Problems("labels"), dict[str, tuple[str, str]]()
    for part in parts:
        for label, found in sorted(find_labels(part.items).items(), key=lambda entry: entry[1].first_line):
            where = f"{part.path}:{found.first_line}"
            other, earlier = first.setdefault(normalize("NFC", label), (label, where))
            if other != label:
                problems.add(f"{where}: label {label!r} differs in Unicode from {earlier}; {_other_form(label, other)}")
    problems.raise_if_any()


def _other_form(label: str, other: str) -> str:

    return f"expected the same Unicode in all files, such as NFC: found {label!a} here, and {other!a} there"


@dataclass(frozen=True)
class TextItem:
    """A text, or a pair of texts; tasks add the labels."""

    text: str
    text_pair: str | None = field(default=None, kw_only=True)
    slices: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Slices of the item: value by key."""

    @property
    def content(self) -> str | TextPair:
        """Text or pair of texts, as the model's input."""
        return self.text if self.text_pair is None else TextPair(self.text, self.text_pair)

    @property
    def as_row(self) -> dict[str, str]:
        """First fields of a row in a predictions file."""
        return {"text": self.text} | ({} if self.text_pair is None else {"text_pair": self.text_pair})


@dataclass(frozen=True)
class TextFile(Labelled[AnyItem]):
    """Items of a file of texts or pairs."""

    @property
    @override
    def unit(self) -> str:
        return "pairs of texts" if any(isinstance(item.content, TextPair) for item in self.items[:1]) else "texts"


class SentenceItem(Item, Protocol):
    """A labelled sentence."""

    @property
    def words(self) -> list[str]:
        """Words of the sentence."""

    @property
    def document(self) -> int:
        """Document number, from 0; each sentence is a document if the file marks none."""


AnySentence = TypeVar("AnySentence", bound=SentenceItem)


@dataclass(frozen=True)
class SentenceFile(Labelled[AnySentence]):
    """Items of a file of sentences."""

    @property
    @abstractmethod
    def marks_documents(self) -> bool:
        """Whether the file (of several, the first) marks where documents begin."""

    @property
    def has_documents(self) -> bool:
        """Whether any file marks where documents begin."""
        return self.marks_documents or any(getattr(part, "has_documents", False) for part in self.parts)

    @property
    @override
    def unit(self) -> str:
        return "documents" if self.has_documents else "sentences"

    @property
    @override
    def unit_ids(self) -> list[int] | None:
        """Document numbers, if the file marks documents."""
        if not self.has_documents:
            return None
        documents = dict.fromkeys(item.document for item in self.items)
        numbers = {document: number for number, document in enumerate(documents)}
        return [numbers[item.document] for item in self.items]

    @property
    def num_documents(self) -> int:
        """Number of documents, marked or not."""
        return len({sentence.document for sentence in self.items})

    @property
    def num_words(self) -> int:
        """Number of words in all sentences."""
        return sum(len(sentence.words) for sentence in self.items)

    @property
    def counted(self) -> str:
        """Counts of sentences, documents and words, for the terminal."""

        grouped = f" in {self.num_documents:,} documents" if self.has_documents else ""
        return f"{len(self.items):,} sentences{grouped}, {self.num_words:,} words"
