"""Texts with one class each in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.errors import Problems
from domainbert.corpus.file_kind import FileKind
from domainbert.labelled.items import Notes, TextFile, TextItem, Unit, in_words, label_counts
from domainbert.labelled.label_names import LabelReader
from domainbert.labelled.row_values import parsed, refuse
from domainbert.labelled.rows import placed, some_texts, text_fields, text_problems, text_rows
from domainbert.labelled.sets import Readable, path_of
from domainbert.tasks.classification.config import Classification, ClassificationFormat


@dataclass(frozen=True)
class LabelledText(TextItem):
    """A text or pair, its class, and the line of the file where it stands."""

    label: str
    line: int

    @property
    def labels(self) -> tuple[str]:
        """Its class."""
        return (self.label,)


@dataclass(frozen=True)
class ClassFile(TextFile[LabelledText]):
    """Contents of a file of texts with classes, and how it was read."""

    nameless: bool = False
    """The classes are numbers without names; each is called by its number."""

    @property
    def texts(self) -> Sequence[LabelledText]:
        """The items."""
        return self.items

    @property
    def summary(self) -> str:
        """A line with the kind of file, the number of texts and of each class."""
        counts = label_counts(self.items)
        said = f"{self.path}: {len(self.items):,} {self.unit}; {FileKind(self.kind)}"
        said += f"; {len(counts)} classes ({in_words(counts)})"
        return said + ("; classes are numbers without names (set label_names)" if self.nameless else "")

    def units(self) -> list[Unit]:
        """The texts, of which folds get the same share of each class."""
        return [Unit(text.line, frozenset(text.labels), text.label) for text in self.items]


def read(config: Classification, file: Readable) -> ClassFile:
    """See `TaskConfig.read`."""
    return read_classification(file, config.format)


def read_classification(file: Readable, format: ClassificationFormat | None = None) -> ClassFile:
    """Read texts with one class each from JSONL, CSV or TSV (the latter two with a header); .gz and .zst are unpacked.

    Classes are names, or numbers from 0 whose names `label_names` gives; without names they are called "0", "1", ...

    Raises:
        DomainbertError: a file whose kind cannot be told, unreadable file, no text; a broken line; a missing key, null,
            or a value that is not a string (a label may be a number); an empty text or label; a label that looks like
            another one, because of white space around it or invisible characters in it; numbers beside names, or a
            number or name that `label_names` does not have, or text that may be either.
    """
    format, problems, notes = format or ClassificationFormat(), Problems(str(file)), Notes()
    kind, names, rows = text_rows(file, format, problems, notes)
    labels = LabelReader(format.label_key, names)

    def parse(row: dict[str, Any], line: int) -> LabelledText:
        refuse(*text_problems(row, format), placed(labels.problem_with(row, line), file, line))
        return LabelledText(**text_fields(row, format), label=labels.name(row[format.label_key]), line=line)

    texts = some_texts(parsed(rows, problems, parse), format, problems)
    return ClassFile(path_of(file), texts, kind, labels.nameless, notes=notes)
