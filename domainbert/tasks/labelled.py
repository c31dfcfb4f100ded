"""Strict readers of labelled files: tagged sentences (CoNLL or JSONL) and texts with a class (JSONL, CSV, TSV)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import FileKind, Kind, look, tell_kind
from domainbert.corpus.json_values import is_whole_number, listed, problem_with_strings, problem_with_text, shown
from domainbert.corpus.rows import csv_rows, json_rows
from domainbert.tasks.classification.config import ClassificationFormat
from domainbert.tasks.label_names import label_names
from domainbert.tasks.ner.config import NerFormat
from domainbert.tasks.ner.conll import NerFile, Sentence, read_conll, read_words
from domainbert.tasks.ner.jsonl import read_ner_jsonl
from domainbert.tasks.ner.tags import is_visible

_DELIMITERS: dict[Kind, str] = {"csv": ",", "tsv": "\t"}


@dataclass(frozen=True)
class LabelledText:
    """A text, its class, and the line of the file where it stands."""

    text: str
    label: str
    line: int


def read_ner(path: Path, format: NerFormat | None = None) -> NerFile:
    """Read tagged sentences from CoNLL or JSONL; `format.kind` says which, or the first lines do.

    Raises:
        DomainbertError: a file whose kind cannot be told, or what `read_conll` or `read_ner_jsonl` refuses.
    """
    format = format or NerFormat()
    kind = _kind(path, format.kind, ("conll", "jsonl"))
    if kind == "jsonl":
        return read_ner_jsonl(path, format)
    return read_conll(path, format.token_column, format.tag_column, format.scheme, format.repair)


def _kind(path: Path, asked: Kind | Literal["auto"], expected: tuple[Kind, ...]) -> Kind:
    """What the user says the file is, or its first lines; a stream is refused, for they would be lost."""
    check_regular(path)
    return tell_kind(path, look(path), expected, "format.kind").kind if asked == "auto" else asked


@dataclass(frozen=True)
class ClassFile:
    """What a file of texts with classes holds, and how it was read."""

    path: Path
    texts: list[LabelledText]
    kind: Kind
    nameless: bool = False
    """The classes are numbers without names; each is called by its number."""

    def describe(self) -> str:
        """What was read, for printing: the kind of file, the number of texts and of each class."""
        classes = Counter(text.label for text in self.texts)
        counts = ", ".join(f"{label} {count:,}" for label, count in sorted(classes.items()))
        said = f"{self.path}: {len(self.texts):,} texts; {FileKind(self.kind)}; {len(classes)} classes ({counts})"
        return said + ("; classes are numbers without names (label_names gives them some)" if self.nameless else "")


def read_classification(path: Path, format: ClassificationFormat | None = None) -> ClassFile:
    """Read texts with one class each from JSONL, CSV or TSV (the latter two with a header); .gz and .zst are unpacked.

    Classes are names, or numbers from 0 whose names `label_names` gives; without names they are called "0", "1", ...

    Raises:
        DomainbertError: a file whose kind cannot be told, unreadable file, no text; a broken line; a missing key, null,
            or a value that is not a string (a label may be a number); an empty text or label; a label that looks like
            another one, because of white space around it or invisible characters in it; numbers beside names, or a
            number or name that `label_names` does not have, or text that may be either.
    """
    format = format or ClassificationFormat()
    text_key, label_key = format.text_key, format.label_key
    kind = _kind(path, format.kind, ("jsonl", "csv", "tsv"))
    problems = Problems(str(path))
    if kind == "jsonl":
        rows = json_rows(path, problems)
    else:
        rows = _csv_rows(path, _DELIMITERS[kind], (text_key, label_key), problems)
    texts, labels = [], None
    for line, row in rows:
        labels = labels or _Labels(label_key, label_names(format, row if kind == "jsonl" else {}, f"{path}:{line}"))
        found = [problem_with_text(row, text_key), labels.problem_with(row, line)]
        for problem in filter(None, found):
            problems.add(f"{path}:{line}: {problem}")
        if not any(found):
            texts.append(LabelledText(str(row[text_key]), labels.name(row[label_key]), line))
    problems.raise_if_any()
    if labels is None or not texts:
        raise DomainbertError(f"{path}: no texts; expected at least one with {text_key!r} and {label_key!r}")
    return ClassFile(path, texts, kind, labels.nameless)


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
        """The number that stands for a name; a column of CSV spells it in digits."""
        assert self.names is not None
        digits = str(value)
        number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else -1
        return number if 0 <= number < len(self.names) else None


def read_words_or_texts(path: Path) -> list[str]:
    """The words of a tagged file, or the texts of one with classes or entities, whatever its labels.

    They stand where they usually do: in the first column of CoNLL, under "tokens" or "text" in JSONL, "text" in CSV.

    Raises:
        DomainbertError: a file whose kind cannot be told, or that cannot be read.
    """
    check_regular(path)
    kind = tell_kind(path, look(path), ("conll", "jsonl", "csv", "tsv"))
    print(f"{path}: read as {kind}")
    if kind.kind == "conll":
        return [word for sentence in read_words(path) for word in sentence]
    if kind.kind != "jsonl":
        return [text.text for text in read_classification(path).texts]
    problems = Problems(str(path))
    found: list[str] = []
    for line, row in json_rows(path, problems):
        with_words = "tokens" in row
        problem = problem_with_strings(row, "tokens") if with_words else problem_with_text(row, "text", True)
        if problem:
            problems.add(f"{path}:{line}: {problem}")
        else:
            found += row["tokens"] if with_words else [row["text"]]
    problems.raise_if_any()
    return found


def label_set(items: Sequence[Sentence] | Sequence[LabelledText]) -> list[str]:
    """The sorted labels of a training set: entity types of sentences, classes of texts."""
    return sorted({label for item in items for label, _ in _labels_of(item)})


def check_labels_known(items: Sequence[Sentence] | Sequence[LabelledText], known: Sequence[str], path: Path) -> None:
    """Refuse labels that training never saw: no model can predict them.

    Args:
        items: the sentences or texts of `path`.
        known: entity types or classes, as `label_set` gives them.
        path: named in the message.

    Raises:
        DomainbertError: with the first line and the number of each unknown label.
    """
    check_found_known(find_labels(items), known, path)


@dataclass(frozen=True)
class FoundLabel:
    """Where a label stands in a file: the line of the first item that has it, and how many times in all."""

    first_line: int
    count: int


def find_labels(items: Sequence[Sentence] | Sequence[LabelledText]) -> dict[str, FoundLabel]:
    """The labels of a file, sorted, and where they stand: all that `check_found_known` needs of it."""
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for item in items:
        for label, line in _labels_of(item):
            counts[label] += 1
            first.setdefault(label, line)
    return {label: FoundLabel(first[label], counts[label]) for label in sorted(counts)}


def check_found_known(found: Mapping[str, FoundLabel], known: Sequence[str], path: Path) -> None:
    """As `check_labels_known`, of the labels that `find_labels` has found."""
    problems = Problems(str(path))
    for label in sorted(set(found) - set(known)):
        seen = f"label {label!r} ({found[label].count:,} times, first here)"
        expected = f"expected one of {', '.join(sorted(known))}"
        problems.add(f"{path}:{found[label].first_line}: {seen} was not in training; {expected}")
    problems.raise_if_any()


def _labels_of(item: Sentence | LabelledText) -> list[tuple[str, int]]:
    """The labels of an item, each with the line where the item begins."""
    if isinstance(item, LabelledText):
        return [(item.label, item.line)]
    return [(kind, item.line) for _, _, kind in item.spans]


def _csv_rows(
    path: Path, delimiter: str, keys: Sequence[str], problems: Problems
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows below the header, by column name; each of `keys` is one column."""
    rows = csv_rows(path, delimiter, problems)
    line, header = next(rows, (1, []))
    wrong = [key for key in keys if header and header.count(key) != 1]
    for key in wrong:
        found = f"{header.count(key) or 'no'} column{'s' if key in header else ''} {key!r}"
        problems.add(f"{path}:{line}: {found}; the header names {listed(header)}")
    if wrong:
        problems.raise_if_any()
    return ((line, dict(zip(header, columns, strict=True))) for line, columns in rows)
