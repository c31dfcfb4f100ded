"""Reader of texts with any number of labels in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from domainbert.base.errors import DomainbertError, Problems, counted
from domainbert.corpus.file_kind import FileKind
from domainbert.labelled.items import ReaderCounts, TextFile, TextItem, Unit, describe_labels, label_counts
from domainbert.labelled.label_names import LabelReader, parse_list, to_integer
from domainbert.labelled.row_values import Row, is_whole_number, parse_rows, problem_with_list, raise_problems, shown
from domainbert.labelled.rows import (
    has_json_values,
    iterate_labelled_rows,
    require_texts,
    text_fields,
    text_problems,
    with_location,
)
from domainbert.labelled.sets import Readable, path_of
from domainbert.tasks.multi_label.config import MultiLabel, MultiLabelFormat


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
        return f"{texts}; {FileKind(self.kind)}; {describe_labels(self.items, 'labels', self.nameless)}"

    def units(self) -> list[Unit]:
        """Return the texts as units of folds, stratified by the rarest label of each text."""
        counts = label_counts(self.items)
        rarest = [min(text.labels, key=lambda label: (counts[label], label), default="") for text in self.items]
        return [Unit(text.line, frozenset(text.labels), label) for text, label in zip(self.items, rarest, strict=True)]


def read(config: MultiLabel, file: Readable) -> MultiLabelFile:
    """Return the texts of a file, with any number of labels each, for `TaskConfig.read`.

    Raises:
        DomainbertError: unreadable file, no text; an invalid line, text or label, as in classification; labels that are
            not a list; a duplicate label.
    """
    format, problems, notes = config.format, Problems(str(file)), ReaderCounts()
    kind, names, rows = iterate_labelled_rows(file, format, problems, notes)

    def check(row: Row, line: int) -> tuple[int, Row]:
        """Return the line and the row with its list of labels; raise `DomainbertError` if the row is invalid."""
        if not has_json_values(kind):
            row[format.label_key] = _labels_of_column(row[format.label_key], format, notes.changed)
        raise_problems(*text_problems(row, format), problem_with_list(row, format.label_key, "format.label_key"))
        return line, row

    labels = LabelReader(format.label_key, names)
    items = _name_labels(parse_rows(rows, problems, check), format, file, labels, problems)
    texts = require_texts(items, format, problems)
    return MultiLabelFile(path_of(file), texts, kind, notes=notes, nameless=labels.nameless)


def _labels_of_column(column: str, format: MultiLabelFormat, changed: Counter[str]) -> list[Any]:
    """Return the labels in a column: the parts between separators, or the items of a list that pandas wrote.

    An empty column has no labels. Lists are counted in `changed`. Raise `DomainbertError` for an invalid list.
    """
    parsed_list = parse_list(column)
    column = column.strip()
    if parsed_list is not None:
        changed["columns with a list such as ['a', 'b'], read as its labels"] += 1
        return [to_integer(item, is_column=False) for item in parsed_list]
    parts = [part.strip() for part in column.split(format.separator)] if column else []
    in_brackets = column.startswith("[") and column.endswith("]")
    if in_brackets and (len(parts) == 1 or "]" not in parts[0]):  # not labels with brackets, such as "[a], [b]"
        expected = f"expected labels without brackets, with {format.separator!r} between them, or a list such as"
        raise DomainbertError(f"{format.label_key!r} is {shown(column)}; {expected} ['a', 'b']")
    return parts


def _name_labels(
    rows: Sequence[tuple[int, Row]], format: MultiLabelFormat, file: Readable, reader: LabelReader, problems: Problems
) -> list[LabelledText]:
    """Return the texts of (line, row) pairs; labels given as 0/1 indicators or as numbers are replaced by names."""
    names = reader.names  # None if the file and its settings have no names
    label_lists = [row[format.label_key] for _, row in rows]
    if names is not None and all(_are_indicators(values, len(names)) for values in label_lists):
        return [
            LabelledText(**text_fields(row, format), labels=tuple(compress(names, values)), line=line)
            for (line, row), values in zip(rows, label_lists, strict=True)
        ]

    # as numbers of labels, both [0, 1] and [1, 0] would mean the labels 0 and 1
    has_both_orders = [0, 1] in label_lists and [1, 0] in label_lists
    if names is None and has_both_orders and all(_are_indicators(values, 2) for values in label_lists):
        found = f"{reader.key!r} has two numbers, each 0 or 1, in every row"
        problems.add(f"{file}: {found}; expected the names of the two labels in format.label_names")
        problems.raise_if_any()

    def parse(row: Row, line: int) -> LabelledText:
        """Return the text of a row whose labels are numbers or names."""
        values = row[format.label_key]
        label_problems = [reader.problem_with({reader.key: value}, line) for value in values]
        raise_problems(*(with_location(problem, file, line) for problem in label_problems))
        labels = tuple(map(reader.name, values))
        duplicates = [label for label, count in Counter(labels).items() if count > 1]
        expected = "expected it once (for lists with a 0 or 1 for each label, set format.label_names)"
        raise_problems(*(f"{reader.key!r} has {label!r} more than once; {expected}" for label in duplicates))
        return LabelledText(**text_fields(row, format), labels=labels, line=line)

    return parse_rows(rows, problems, parse)


def _are_indicators(values: Sequence[Any], count: int) -> bool:
    """Whether values are `count` numbers 0 or 1, one for each label."""
    return len(values) == count and all(is_whole_number(value) and value in (0, 1) for value in values)
