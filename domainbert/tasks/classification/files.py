"""Reader of texts with one class each in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from domainbert.labelled.items import TextFile, TextItem, Unit, describe_labels
from domainbert.labelled.rows import TextRows
from domainbert.labelled.sets import Readable
from domainbert.tasks.classification.config import Classification


@dataclass(frozen=True)
class LabelledText(TextItem):
    """A text or pair with its class and line number."""

    label: str
    line: int

    @property
    def labels(self) -> tuple[str]:
        """Return a tuple with only the class."""
        return (self.label,)


@dataclass(frozen=True)
class ClassFile(TextFile[LabelledText]):
    """A file of texts with classes."""

    @property
    @override
    def summary(self) -> str:
        return f"{super().summary}; {describe_labels(self.items, 'classes', self.nameless)}"

    def units(self) -> list[Unit]:
        """Return one unit per text, stratified by class."""
        return [Unit(text.line, frozenset(text.labels), text.label) for text in self.items]


def read(config: Classification, file: Readable) -> ClassFile:
    """Return the texts of a file in JSONL, or CSV or TSV with a header, with one class each, for `TaskConfig.read`.

    Classes are names, or numbers from 0 with names in `label_names`; without names they become "0", "1", ... For
    invalid rows see `TextRows` and `LabelReader`.
    """
    source = TextRows(file, config.format)
    labels = source.label_reader(config.format)

    rows = source.valid_rows(labels.problem_with)
    texts = [LabelledText(**fields, label=labels.name(row[labels.key]), line=line) for line, row, fields in rows]
    return ClassFile(source.path, source.require(texts), source.kind, notes=source.notes, nameless=labels.nameless)
