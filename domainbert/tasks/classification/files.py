"""Reader of texts with one class each in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from domainbert.base.errors import Problems
from domainbert.labelled.items import ReaderCounts, TextFile, TextItem, Unit, describe_labels
from domainbert.labelled.label_names import LabelReader
from domainbert.labelled.row_values import parse_rows, raise_problems
from domainbert.labelled.rows import iterate_labelled_rows, require_texts, text_fields, text_problems, with_location
from domainbert.labelled.sets import Readable, path_of
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

    Files in .gz and .zst are decompressed.

    Classes are names, or numbers from 0 with names in `label_names`; without names they become "0", "1", ...

    Raises:
        DomainbertError: unknown format, unreadable file, no text; an invalid line; a missing key, null, or a value that
            is not a string (a label may be a number); an empty text or label; a label that differs from another label
            only in white space or invisible characters; a mix of numbers and names; a number or name that
            `label_names` does not have; text that may be a number or a name.
    """
    format, problems, notes = config.format, Problems(str(file)), ReaderCounts()
    kind, names, rows = iterate_labelled_rows(file, format, problems, notes)
    labels = LabelReader(format.label_key, names)

    def parse(row: dict[str, Any], line: int) -> LabelledText:
        raise_problems(*text_problems(row, format), with_location(labels.problem_with(row, line), file, line))
        return LabelledText(**text_fields(row, format), label=labels.name(row[format.label_key]), line=line)

    texts = require_texts(parse_rows(rows, problems, parse), format, problems)
    return ClassFile(path_of(file), texts, kind, notes=notes, nameless=labels.nameless)
