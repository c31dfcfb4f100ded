"""Reader of texts with any number of labels in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from domainbert.base.errors import DomainbertError, counted
from domainbert.corpus.file_kind import KIND_NAMES
from domainbert.corpus.rows import Row
from domainbert.labelled.items import TextFile, TextItem, Unit, describe_labels, label_counts
from domainbert.labelled.label_names import LabelReader
from domainbert.labelled.row_values import (
    is_whole_number,
    parse_list,
    parse_rows,
    problem_with_list,
    raise_problems,
    shown,
    to_integer,
)
from domainbert.labelled.rows import TextRows
from domainbert.labelled.sets import Readable
from domainbert.tasks.multi_label.config import MultiLabel, MultiLabelFormat

FieldsAndLabels = tuple[dict[str, Any], list[Any]]
"""Fields of a `TextItem` by name, and the labels as in the file."""


@dataclass(frozen=True)
class LabelledText(TextItem):
    """A text or pair with its labels and line number."""

    labels: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class MultiLabelFile(TextFile[LabelledText]):
    """A file of texts with labels."""

    @property
    def summary(self) -> str:
        """Return a line with the numbers of texts, of texts without labels, and of each label."""
        unlabelled = sum(not text.labels for text in self.items)
        texts = f"{self.path}: {counted(len(self.items), self.unit)}, {unlabelled:,} of them without labels"
        return f"{texts}; {KIND_NAMES[self.kind]}; {describe_labels(self.items, 'labels', self.nameless)}"

    def units(self) -> list[Unit]:
        """Return the texts as units of folds, stratified by the rarest label of each text."""
        counts = label_counts(self.items)
        rarest = [min(text.labels, key=lambda label: (counts[label], label), default="") for text in self.items]
        return [Unit(text.line, frozenset(text.labels), label) for text, label in zip(self.items, rarest, strict=True)]


def read(config: MultiLabel, file: Readable) -> MultiLabelFile:
    """Return the texts of a file, with any number of labels each, for `TaskConfig.read`.

    Raise `DomainbertError` as in classification, and for labels that are not a list, or a duplicate label.
    """
    format = config.format
    source = TextRows(file, format)
    labels = source.label_reader(format)

    def problem_with(row: Row, line: int) -> DomainbertError | None:
        if not source.has_types:
            row[labels.key] = _labels_of_column(row[labels.key], format, source)
        return problem_with_list(row, labels.key, "format.label_key")

    rows = [(line, (fields, row[labels.key])) for line, row, fields in source.valid_rows(problem_with)]
    name_labels = _label_namer([values for _, (_, values) in rows], source, labels)
    texts = source.require(parse_rows(rows, source.problems, name_labels))
    return MultiLabelFile(source.path, texts, source.kind, notes=source.notes, nameless=labels.nameless)


def _labels_of_column(column: str, format: MultiLabelFormat, source: TextRows) -> list[Any]:
    """Return the parts between separators, or the items of a list that pandas wrote, which is counted."""
    parsed_list = parse_list(column)
    column = column.strip()
    if parsed_list is not None:
        source.notes.changed["columns with a list such as ['a', 'b'], read as its labels"] += 1
        return [to_integer(item, is_column=False) for item in parsed_list]
    parts = [part.strip() for part in column.split(format.separator)] if column else []
    in_brackets = column.startswith("[") and column.endswith("]")
    if in_brackets and (len(parts) == 1 or "]" not in parts[0]):  # not labels with brackets, such as "[a], [b]"
        expected = f"labels without brackets, with {format.separator!r} between them, or a list such as"
        raise DomainbertError(f"{format.label_key!r} is {shown(column)}", expected=f"{expected} ['a', 'b']")
    return source.with_integers(parts)


def _label_namer(
    label_lists: Sequence[list[Any]], source: TextRows, reader: LabelReader
) -> Callable[[FieldsAndLabels, int], LabelledText]:
    """Return the function that makes the text of a row: labels given as 0/1 indicators or numbers become names."""
    names = reader.names  # None if the file and its settings have no names
    if names is not None and all(_are_indicators(values, len(names)) for values in label_lists):
        return lambda row, line: LabelledText(**row[0], labels=tuple(compress(names, row[1])), line=line)

    # as numbers of labels, both [0, 1] and [1, 0] would mean the labels 0 and 1
    has_both_orders = [0, 1] in label_lists and [1, 0] in label_lists
    if names is None and has_both_orders and all(_are_indicators(values, 2) for values in label_lists):
        found = f"{reader.key!r} has two numbers, each 0 or 1, in every row"
        source.problems.add(found, file=source.file, expected="the names of the two labels in format.label_names")
        source.problems.raise_if_any()

    def parse(row: FieldsAndLabels, line: int) -> LabelledText:
        fields, values = row
        label_problems = [reader.problem_with({reader.key: value}, line) for value in values]
        raise_problems(*(source.with_location(problem, line) for problem in label_problems))
        labels = tuple(map(reader.name, values))
        duplicates = [label for label, count in Counter(labels).items() if count > 1]
        expected = "it once (for lists with a 0 or 1 for each label, set format.label_names)"
        repeats = (f"{reader.key!r} has {label!r} more than once" for label in duplicates)
        raise_problems(*(DomainbertError(repeat, expected=expected) for repeat in repeats))
        return LabelledText(**fields, labels=labels, line=line)

    return parse


def _are_indicators(values: Sequence[Any], count: int) -> bool:
    return len(values) == count and all(is_whole_number(value) and value in (0, 1) for value in values)
