"""Texts with one class each in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.file_kind import FileKind
from domainbert.corpus.json_values import is_whole_number, listed, problem_with_text, shown
from domainbert.tasks.classification.config import Classification, ClassificationFormat
from domainbert.tasks.label_names import is_visible, number_of
from domainbert.tasks.labelled import Labelled, Unit
from domainbert.tasks.text_files import TextRows


@dataclass(frozen=True)
class LabelledText:
    """A text, its class, and the line of the file where it stands."""

    text: str
    label: str
    line: int

    @property
    def content(self) -> str:
        """The text."""
        return self.text

    @property
    def labels(self) -> tuple[str]:
        """Its class."""
        return (self.label,)


@dataclass(frozen=True)
class ClassFile(Labelled[LabelledText]):
    """What a file of texts with classes holds, and how it was read."""

    nameless: bool = False
    """The classes are numbers without names; each is called by its number."""

    @property
    def texts(self) -> Sequence[LabelledText]:
        """The items."""
        return self.items

    def describe(self) -> str:
        """What was read, for printing: the kind of file, the number of texts and of each class."""
        classes = Counter(text.label for text in self.texts)
        counts = ", ".join(f"{label} {count:,}" for label, count in sorted(classes.items()))
        said = f"{self.path}: {len(self.texts):,} texts; {FileKind(self.kind)}; {len(classes)} classes ({counts})"
        return said + ("; classes are numbers without names (label_names gives them some)" if self.nameless else "")

    def units(self) -> list[Unit]:
        """The texts, of which folds get the same share of each class."""
        return [Unit(text.line, frozenset(text.labels), text.label) for text in self.texts]


def read(config: Classification, path: Path) -> ClassFile:
    """See `TaskConfig.read`."""
    return read_classification(path, config.format)


def read_classification(path: Path, format: ClassificationFormat | None = None) -> ClassFile:
    """Read texts with one class each from JSONL, CSV or TSV (the latter two with a header); .gz and .zst are unpacked.

    Classes are names, or numbers from 0 whose names `label_names` gives; without names they are called "0", "1", ...

    Raises:
        DomainbertError: a file whose kind cannot be told, unreadable file, no text; a broken line; a missing key, null,
            or a value that is not a string (a label may be a number); an empty text or label; a label that looks like
            another one, because of white space around it or invisible characters in it; numbers beside names, or a
            number or name that `label_names` does not have, or text that may be either.
    """
    format, problems = format or ClassificationFormat(), Problems(str(path))
    rows = TextRows(path, format, problems)
    texts, labels = [], None
    for line, row in rows:
        labels = labels or _Labels(format.label_key, rows.names)
        found = [problem_with_text(row, format.text_key), labels.problem_with(row, line)]
        for problem in filter(None, found):
            problems.add(f"{path}:{line}: {problem}")
        if not any(found):
            texts.append(LabelledText(str(row[format.text_key]), labels.name(row[format.label_key]), line))
    problems.raise_if_any()
    if labels is None or not texts:
        raise DomainbertError(
            f"{path}: no texts; expected at least one with {format.text_key!r} and {format.label_key!r}"
        )
    return ClassFile(path, texts, rows.kind, labels.nameless)


class _Labels:
    """Names of classes from a file where they are strings or numbers, but not both without `names`."""

    def __init__(self, key: str, names: Sequence[str] | None) -> None:
        self.key, self.names = key, names
        numbers = [(number, self._number(name)) for number, name in enumerate(names or ())]
        # 1 to 5 stars: "1" is the name of 0, and the number of "2"
        self._unclear = any(other is not None and other != number for number, other in numbers)
        self._first: tuple[bool, int] | None = None  # whether the first label is a number, and its line

    @property
    def nameless(self) -> bool:
        """The classes are numbers without names."""
        return self.names is None and self._first is not None and self._first[0]

    def problem_with(self, row: dict[str, Any], line: int) -> str:
        """Why the row has no label, or an empty string."""
        value = row.get(self.key)
        numbered = is_whole_number(value)
        if not numbered:
            problem = problem_with_text(row, self.key).replace("expected a string", "expected a string or whole number")
            if problem or not is_visible(str(value)):
                expected = "expected visible characters and no white space around them"
                return problem or f"{self.key!r} is {shown(value)}; {expected}"
        if self.names is not None:
            if self._unclear and not numbered and (value in self.names or self._number(value) is not None):
                found = f"label {shown(value)} may be a name or a number from 0, for the names are {listed(self.names)}"
                return f"{found}; expected names that are no such numbers, or no label_names where the labels are names"
            expected = f"expected one of {listed(self.names)}, or its number from 0"
            return "" if value in self.names or self._number(value) is not None else f"label {shown(value)}; {expected}"
        self._first = self._first or (numbered, line)
        if numbered != self._first[0]:
            words = [f"a {'number' if one else 'string'}" for one in (numbered, self._first[0])]
            return f"{self.key!r} is {shown(value)}, {words[0]}; expected {words[1]} as in line {self._first[1]}"
        return f"{self.key!r} is {shown(value)}; expected a number from 0" if numbered and int(str(value)) < 0 else ""

    def name(self, value: Any) -> str:
        """The name of a label without a problem."""
        if self.names is None or value in self.names:
            return str(value)
        number = self._number(value)
        assert number is not None
        return self.names[number]

    def _number(self, value: Any) -> int | None:
        assert self.names is not None
        return number_of(value, self.names)
