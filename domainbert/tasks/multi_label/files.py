"""Texts with any number of labels in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.file_kind import FileKind
from domainbert.corpus.json_values import is_whole_number, problem_with_list, problem_with_text
from domainbert.tasks.labelled import Labelled, Unit
from domainbert.tasks.multi_label.config import MultiLabel, MultiLabelFormat
from domainbert.tasks.text_files import LabelReader, TextRows


@dataclass(frozen=True)
class LabelledText:
    """A text, its labels, and the line of the file where it stands."""

    text: str
    labels: tuple[str, ...]
    line: int

    @property
    def content(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True)
class MultiLabelFile(Labelled[LabelledText]):
    """Contents of a file of texts with labels."""

    def describe(self) -> str:
        """A line with the number of texts, of those without labels, and of each label."""
        counts = Counter(label for text in self.items for label in text.labels)
        told = ", ".join(f"{label} {count:,}" for label, count in sorted(counts.items()))
        bare = sum(not text.labels for text in self.items)
        said = f"{self.path}: {len(self.items):,} texts, {bare:,} of them without labels; {FileKind(self.kind)}"
        return f"{said}; {len(counts)} labels ({told})"

    def units(self) -> list[Unit]:
        """The texts, of which folds get the same share by the rarest label of each: rare ones are hard to spread."""
        counts = Counter(label for text in self.items for label in text.labels)
        return [
            Unit(text.line, frozenset(text.labels), min(text.labels, key=lambda one: (counts[one], one), default=""))
            for text in self.items
        ]


def read(config: MultiLabel, path: Path) -> MultiLabelFile:
    """See `TaskConfig.read`."""
    return read_multi_label(path, config.format)


def read_multi_label(path: Path, format: MultiLabelFormat | None = None) -> MultiLabelFile:
    """Read texts with any number of labels each.

    Raises:
        DomainbertError: as `read_classification`; labels that are no list; a label twice.
    """
    format, problems = format or MultiLabelFormat(), Problems(str(path))
    rows = TextRows(path, format, problems)
    found: list[tuple[str, list[Any], int]] = []
    for line, row in rows:
        if rows.kind != "jsonl":
            row[format.label_key] = _split(row[format.label_key], format.separator)
        wrong = [problem_with_text(row, format.text_key), problem_with_list(row, format.label_key)]
        for problem in filter(None, wrong):
            problems.add(f"{path}:{line}: {problem}")
        if not any(wrong):
            found.append((row[format.text_key], row[format.label_key], line))
    items = _named(found, format.label_key, rows.names, problems)
    problems.raise_if_any()
    if not items:
        raise DomainbertError(
            f"{path}: no texts; expected at least one with {format.text_key!r} and {format.label_key!r}"
        )
    return MultiLabelFile(path, items, rows.kind)


def _split(column: str, separator: str) -> list[str]:
    return [part.strip() for part in column.split(separator)] if column.strip() else []


def _named(
    found: Sequence[tuple[str, list[Any], int]], key: str, names: Sequence[str] | None, problems: Problems
) -> list[LabelledText]:
    """The texts with the names of their labels."""
    items: list[LabelledText] = []
    if names is not None and all(_are_indicators(values, len(names)) for _, values, _ in found):
        for text, values, line in found:
            labels = tuple(name for name, there in zip(names, values, strict=True) if there)
            items.append(LabelledText(text, labels, line))
        return items
    reader = LabelReader(key, names)
    for text, values, line in found:
        wrong = [problem for value in values if (problem := reader.problem_with({key: value}, line))]
        labels = () if wrong else tuple(map(reader.name, values))
        twice = [label for label, count in Counter(labels).items() if count > 1]
        wrong += [
            f"label {label!r} twice; expected it once (label_names says what 0 and 1 stand for)" for label in twice
        ]
        for problem in wrong:
            problems.add(f"{problems.subject}:{line}: {problem}")
        items.append(LabelledText(text, labels, line))
    return items


def _are_indicators(values: Sequence[Any], count: int) -> bool:
    return len(values) == count and all(is_whole_number(value) and value in (0, 1) for value in values)
