"""Items of a labelled file, independent of the task."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from unicodedata import normalize

from typing_extensions import override

from domainbert.base.errors import Problems, counted
from domainbert.corpus.file_kind import KIND_NAMES, Kind
from domainbert.labelled.contents import Content, TextPair, text_in


class Item(Protocol):
    """A labelled text or sentence, the interface of a task's items."""

    @property
    def line(self) -> int:
        """The first line in the file, from 1."""

    @property
    def content(self) -> Content:
        """The input of the model: a text, a pair of texts, a list of words, or a text with markers."""

    @property
    def labels(self) -> Sequence[str]:
        """The names of the labels, with repetitions, that must occur in training; () if labels are numbers."""


AnyItem = TypeVar("AnyItem", bound=Item)


@dataclass(frozen=True)
class LabelledSpan:
    """A labelled character range of the first text, `end` exclusive."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class PlainItem:
    """An item of any task, as the data checks read it."""

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


@dataclass(frozen=True)
class Unit:
    """A part of the file that folds do not divide, such as a document: its first line, its labels, and the class by
    which folds are stratified, if they are."""

    line: int
    labels: frozenset[str] = frozenset()
    stratum: str = ""


@dataclass
class ReaderCounts:
    """Counts of the entries that a reader left out and of the values that it changed, by plural noun ("relations")."""

    left_out: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)

    @property
    def lines(self) -> list[str]:
        """Return a line for each non-empty counter, such as `  left out: relations (3)`."""
        return [
            f"  {name.replace('_', ' ')}: {', '.join(f'{what} ({n:,})' for what, n in sorted(counts.items()))}"
            for name, counts in vars(self).items()
            if counts
        ]


@dataclass(frozen=True)
class Labelled(Generic[AnyItem]):
    """Items of a labelled file, or of the files of a set, in file order."""

    path: Path
    items: Sequence[AnyItem]
    kind: Kind
    parts: Sequence[Labelled[AnyItem]] = field(default=(), kw_only=True)
    """Files of a set; `path` is then their common folder, and line numbers refer to each file."""
    notes: ReaderCounts = field(default_factory=ReaderCounts, kw_only=True)
    nameless: bool = field(default=False, kw_only=True)
    """Whether the labels are numbers without names; the number becomes the name."""

    @property
    def unit(self) -> str:
        """The plural name of the units that the bootstrap resamples, such as "documents"."""
        return "texts"

    @property
    def unit_ids(self) -> Sequence[int] | None:
        """For each item the index of its unit, which the bootstrap resamples whole; None if each item is a unit."""
        return None

    @property
    def summary(self) -> str:
        """Return a line with the number of items and the file format, the first line of `describe`."""
        return f"{self.path}: {counted(len(self.items), self.unit)}; {KIND_NAMES[self.kind]}"

    @property
    def file_names(self) -> str:
        """Return the file names, separated by commas."""
        return ", ".join(part.path.name for part in self.parts or [self])

    def describe(self) -> str:
        """Return the lines for the terminal: `summary` and `notes` of each file."""
        return "\n".join(part.describe() for part in self.parts) or "\n".join([self.summary, *self.notes.lines])

    def units(self) -> list[Unit]:
        """Return the units that folds do not divide, in file order; by default the items."""
        return [Unit(item.line, frozenset(item.labels)) for item in self.items]

    def fold_units(self) -> Sequence[int]:
        """Return for each item the index of its unit in `units`; by default the last that begins up to its line."""
        starts = [unit.line for unit in self.units()]
        return [max(bisect_right(starts, item.line) - 1, 0) for item in self.items]

    def file_content(self, units: Sequence[int]) -> str | None:
        """Return the content of a file with only the units of these indices; by default None, which means the lines of
        each unit, from `Unit.line` to the next unit."""
        return None

    def location(self, index: int) -> str:
        """Return `path:line` of an item, given its index."""
        for part in self.parts:
            if index < len(part.items):
                return part.location(index)
            index -= len(part.items)
        item = self.items[index]
        return f"{_own_file(item) or self.path}:{item.line}"

    def line_or_location(self, index: int) -> int | str:
        """Return the line of an item, or `path:line` in a set of several files, given its index."""
        item = self.items[index]
        return self.location(index) if self.parts or _own_file(item) else item.line

    def plain_items(self) -> list[PlainItem]:
        """Return each item as a `PlainItem`, which the data checks read."""
        if self.parts:
            return [item for part in self.parts for item in part.plain_items()]
        return [self.plain_item(item) for item in self.items]

    def plain_item(self, item: AnyItem) -> PlainItem:
        """Return an item as a `PlainItem` with its texts and labels; tasks override this method to add other fields."""
        content, labels = item.content, tuple(item.labels)
        texts = (content.first, content.second) if isinstance(content, TextPair) else (text_in(content),)
        return PlainItem(texts, labels, target=tuple(sorted(labels)))

    @property
    def contents(self) -> list[Content]:
        """Return the model input of each item."""
        return [item.content for item in self.items]


def _own_file(item: Item) -> Path | None:
    """Return the file of an item of a folder, such as a document of brat; None if it is in the file of the set."""
    return getattr(item, "file", None)


def label_counts(items: Iterable[Item]) -> dict[str, int]:
    """Return how often each label occurs in the items, sorted by label."""
    return dict(sorted(Counter(label for item in items for label in item.labels).items()))


def label_set(items: Iterable[Item]) -> list[str]:
    """Return the distinct labels of items, sorted: entity types of sentences, classes of texts."""
    return list(label_counts(items))


def distinct_indices(keys: Iterable[Hashable]) -> list[int]:
    """Return for each key its index among the distinct keys, which are numbered from 0 by their first occurrence."""
    index_of: dict[Hashable, int] = {}
    return [index_of.setdefault(key, len(index_of)) for key in keys]


def format_counts(counts: Mapping[str, int]) -> str:
    """Return label counts as text for the terminal: `down 1,200, up 7`."""
    return ", ".join(f"{label} {count:,}" for label, count in counts.items())


def describe_labels(items: Iterable[Item], plural: str, nameless: bool = False) -> str:
    """Return the labels of items with their counts, for the terminal: `2 classes (down 1,200, up 7)`; `plural` is what
    the task calls its labels."""
    counts = label_counts(items)
    note = f"; {plural} are numbers without names (set format.label_names)" if nameless else ""
    return f"{counted(len(counts), plural)} ({format_counts(counts)}){note}"


@dataclass(frozen=True)
class FoundLabel:
    """Line of the first item with a label, and the total count of the label; `file` as in `TaggedSentence`."""

    first_line: int
    count: int
    file: Path | None = None


def find_labels(items: Sequence[Item]) -> dict[str, FoundLabel]:
    """Return the first line and the count of each label, by label, sorted."""
    # reversed: the first item with a label is stored last, and stays
    first = {label: item for item in reversed(items) for label in item.labels}
    counts = label_counts(items).items()
    return {label: FoundLabel(first[label].line, count, _own_file(first[label])) for label, count in counts}


def check_set_known(labelled: Labelled[Any], known: Iterable[str]) -> None:
    """Raise `DomainbertError` if a file of a set has labels other than `known`."""
    known = list(known)
    for part in labelled.parts or [labelled]:
        check_labels_known(find_labels(part.items), known, part.path)


def check_labels_known(labels: Mapping[str, FoundLabel], known: Iterable[str], path: Path) -> None:
    """Raise `DomainbertError` if a file has labels that are not in training: the model cannot predict them."""
    problems = Problems(str(path))
    known = sorted(known)
    by_nfc = {normalize("NFC", label): label for label in known}
    for label in sorted(set(labels) - set(known)):
        seen = f"label {label!r} (count {labels[label].count:,}, first here)"
        other = by_nfc.get(normalize("NFC", label))
        expected = _same_unicode(label, other) if other else f"a training label: {', '.join(map(repr, known))}"
        file, line = labels[label].file or path, labels[label].first_line
        problems.add(f"{seen} was not in training", file=file, line=line, expected=expected)
    problems.raise_if_any()


def check_unicode_forms(parts: Iterable[Labelled[Any]]) -> None:
    """Raise `DomainbertError` if two labels differ only by Unicode normalization, such as NFC and NFD."""
    problems, first_form = Problems("labels"), dict[str, tuple[str, str]]()
    for part in parts:
        for label, found in sorted(find_labels(part.items).items(), key=lambda entry: entry[1].first_line):
            where = f"{found.file or part.path}:{found.first_line}"
            other, earlier = first_form.setdefault(normalize("NFC", label), (label, where))
            if other != label:
                expected = _same_unicode(label, other)
                problems.add(f"label {label!r} differs in Unicode from {earlier}", where=where, expected=expected)
    problems.raise_if_any()


def _same_unicode(label: str, other: str) -> str:
    return f"one Unicode form: found {label!a} here and {other!a} there; convert all labels to NFC"


@dataclass(frozen=True)
class TextItem:
    """A text, or a pair of texts; tasks add the labels."""

    text: str
    text_pair: str | None = field(default=None, kw_only=True)
    slices: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Slices (subgroups for evaluation) of the item: value by key, such as `{"year": "2020"}`."""

    @property
    def content(self) -> str | TextPair:
        """Return the text or pair of texts, as the model's input."""
        return self.text if self.text_pair is None else TextPair(self.text, self.text_pair)

    @property
    def as_row(self) -> dict[str, str]:
        """Return the fields of a row in a predictions file: `text`, and `text_pair` of a pair."""
        return {"text": self.text} | ({} if self.text_pair is None else {"text_pair": self.text_pair})


@dataclass(frozen=True)
class TextFile(Labelled[AnyItem]):
    """Items of a file of texts or pairs."""

    @property
    @override
    def unit(self) -> str:
        has_pairs = bool(self.items) and isinstance(self.items[0].content, TextPair)
        return "pairs of texts" if has_pairs else "texts"


class SentenceItem(Item, Protocol):
    """A labelled sentence."""

    @property
    def words(self) -> list[str]:
        """Return the words of the sentence."""

    @property
    def document(self) -> int:
        """Return the index of the document, from 0; each sentence is a document if the file marks none."""


AnySentence = TypeVar("AnySentence", bound=SentenceItem)


@dataclass(frozen=True)
class SentenceFile(Labelled[AnySentence]):
    """Items of a file of sentences."""

    @property
    @abstractmethod
    def marks_documents(self) -> bool:
        """Whether the file, or the first of several, marks where documents begin."""

    @property
    def has_documents(self) -> bool:
        """Whether any file marks documents, and there are several: resamples of a single one would all be equal."""
        marks_documents = any(getattr(part, "marks_documents", False) for part in (self, *self.parts))
        return marks_documents and self.num_documents > 1

    @property
    @override
    def unit(self) -> str:
        return "documents" if self.has_documents else "sentences"

    @property
    @override
    def unit_ids(self) -> list[int] | None:
        return distinct_indices(item.document for item in self.items) if self.has_documents else None

    @property
    def num_documents(self) -> int:
        """The number of documents, marked or not."""
        return len({sentence.document for sentence in self.items})

    @property
    def num_words(self) -> int:
        """The number of words in all sentences."""
        return sum(len(sentence.words) for sentence in self.items)

    @property
    def size_summary(self) -> str:
        """The numbers of sentences, documents and words as text for the terminal."""
        grouped = f" in {self.num_documents:,} documents" if self.has_documents else ""
        return f"{counted(len(self.items), 'sentences')}{grouped}, {counted(self.num_words, 'words')}"
