"""Strict readers of labelled files: tagged sentences (CoNLL or JSONL) and texts with a class (JSONL, CSV, TSV)."""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

from domainbert.corpus.file_kind import FileKind, Kind, look, tell_kind
from domainbert.corpus.rows import csv_rows, json_rows
from domainbert.data.conll import NerFile, Sentence, TaggedRows, read_conll, tagged_file
from domainbert.data.formats import ClassificationFormat, NerFormat
from domainbert.data.tags import is_visible
from domainbert.errors import DomainbertError, Problems

_SHOWN_NAMES = 10
_DELIMITERS: dict[Kind, str] = {"csv": ",", "tsv": "\t"}


@dataclass(frozen=True)
class LabelledText:
    """A text, its class, and the line of the file where it stands."""

    text: str
    label: str
    line: int


def read_ner(path: Path, format: NerFormat | None = None) -> NerFile:
    """Read tagged sentences from CoNLL or JSONL; `format.kind` says which, or the first lines do.

    A line of JSONL is `{"tokens": ["A", ...], "tags": ["O", ...]}` and a document of its own.

    Raises:
        DomainbertError: a file whose kind cannot be told, or what `read_conll` refuses, or in JSONL a broken line, a
            missing key, a value that is no list of strings, or two lists of different length.
    """
    format = format or NerFormat()
    kind = _kind(path, format.kind, ("conll", "jsonl"))
    if kind == "jsonl":
        return _read_ner_jsonl(path, format)
    return read_conll(path, format.token_column, format.tag_column, format.scheme, format.repair)


def _kind(path: Path, asked: Kind | Literal["auto"], expected: tuple[Kind, ...]) -> Kind:
    """What the user says the file is, or its first lines."""
    return tell_kind(path, look(path), expected, "format.kind").kind if asked == "auto" else asked


@dataclass(frozen=True)
class ClassFile:
    """What a file of texts with classes holds, and how it was read."""

    path: Path
    texts: list[LabelledText]
    kind: Kind

    def describe(self) -> str:
        """What was read, for printing: the kind of file, the number of texts and of each class."""
        classes = Counter(text.label for text in self.texts)
        listed = ", ".join(f"{label} {count:,}" for label, count in sorted(classes.items()))
        return f"{self.path}: {len(self.texts):,} texts; {FileKind(self.kind)}; {len(classes)} classes ({listed})"


def read_classification(path: Path, format: ClassificationFormat | None = None) -> ClassFile:
    """Read texts with one class each from JSONL, CSV or TSV (the latter two with a header); .gz and .zst are unpacked.

    Raises:
        DomainbertError: a file whose kind cannot be told, unreadable file, no text; a broken line; a missing key, null,
            or a value that is not a string; an empty text or label; a label that looks like another one, because of
            white space around it or invisible characters in it.
    """
    format = format or ClassificationFormat()
    text_key, label_key = format.text_key, format.label_key
    kind = _kind(path, format.kind, ("jsonl", "csv", "tsv"))
    problems = Problems(str(path))
    if kind == "jsonl":
        rows = json_rows(path, problems)
    else:
        rows = _csv_rows(path, _DELIMITERS[kind], (text_key, label_key), problems)
    texts = []
    for line, row in rows:
        found = [_problem_with(row, text_key), _problem_with(row, label_key) or _problem_with_label(row, label_key)]
        for problem in filter(None, found):
            problems.add(f"{path}:{line}: {problem}")
        if not any(found):
            texts.append(LabelledText(str(row[text_key]), str(row[label_key]), line))
    problems.raise_if_any()
    if not texts:
        raise DomainbertError(f"{path}: no texts; expected at least one with {text_key!r} and {label_key!r}")
    return ClassFile(path, texts, kind)


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
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for item in items:
        for label, line in _labels_of(item):
            counts[label] += 1
            first.setdefault(label, line)
    problems = Problems(str(path))
    for label in sorted(set(counts) - set(known)):
        seen = f"label {label!r} ({counts[label]:,} times, first here)"
        problems.add(f"{path}:{first[label]}: {seen} was not in training; expected one of {', '.join(sorted(known))}")
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
        problems.add(f"{path}:{line}: {found}; the header names {_listed(header)}")
    if wrong:
        problems.raise_if_any()
    return ((line, dict(zip(header, columns, strict=True))) for line, columns in rows)


def _problem_with(row: dict[str, object], key: str) -> str:
    """Why `row[key]` is not a filled string, or an empty string."""
    if key not in row:
        return f"no key {key!r}; found {_listed(row)}"
    value = row[key]
    if not isinstance(value, str):
        return f"{key!r} is {_shown(value)}; expected a string"
    if not value.strip():
        return f"{key!r} is empty; expected a filled string"
    return "" if _is_unicode(value) else f"{key!r} holds half a surrogate pair; expected valid Unicode"


def _problem_with_label(row: dict[str, object], key: str) -> str:
    """Why the string `row[key]` is no name of a class, or an empty string."""
    label = str(row[key])
    if is_visible(label):
        return ""
    return f"{key!r} is {_shown(label)}; expected visible characters and no white space around them"


def _problem_with_list(row: dict[str, object], key: str) -> str:
    """Why `row[key]` is not a list of filled strings, or an empty string."""
    if key not in row:
        return f"no key {key!r}; found {_listed(row)}"
    value = row[key]
    if not isinstance(value, list):
        return f"{key!r} is {_shown(value)}; expected a list of strings"
    for item in value:
        if not isinstance(item, str) or not item or not _is_unicode(item):
            return f"{key!r} holds {_shown(item)}; expected filled strings only"
    return ""


def _listed(names: Iterable[str]) -> str:
    """The first names of columns or keys, for a message."""
    return ", ".join(map(reprlib.repr, islice(names, _SHOWN_NAMES))) or "none"


def _shown(value: object) -> str:
    """A JSON value for a message; only the kind of one that may be nested, and deeper than `json` can write."""
    return f"a JSON {type(value).__name__}" if isinstance(value, (dict, list)) else json.dumps(value)[:40]


def _is_unicode(text: str) -> bool:
    """JSON can spell half a surrogate pair, which no tokenizer takes and no file can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _read_ner_jsonl(path: Path, format: NerFormat) -> NerFile:
    token_key = format.token_column if isinstance(format.token_column, str) else "tokens"
    tag_key = format.tag_column if isinstance(format.tag_column, str) else "tags"
    problems = Problems(str(path))
    rows: list[TaggedRows] = []
    for line, row in json_rows(path, problems):
        wrong = [problem for key in (token_key, tag_key) if (problem := _problem_with_list(row, key))]
        if wrong:
            for problem in wrong:
                problems.add(f"{path}:{line}: {problem}")
            continue
        words, tags = cast("list[str]", row[token_key]), cast("list[str]", row[tag_key])
        if len(words) != len(tags):
            problems.add(f"{path}:{line}: {len(words)} {token_key} but {len(tags)} {tag_key}; expected as many")
            continue
        rows.append(TaggedRows(words, tags, [line] * len(words), line, document=len(rows)))
    problems.raise_if_any()
    layout = f"JSONL, words in {token_key!r}, tags in {tag_key!r}"
    return tagged_file(path, "jsonl", rows, format.scheme, format.repair, layout, marks_documents=False)
