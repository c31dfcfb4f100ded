"""The beginning of a labelled file, by which a task recognises it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.file_kind import Kind, evident_kind, look
from domainbert.corpus.files import format_suffix, read_lines, read_text
from domainbert.corpus.rows import csv_rows, json_rows
from domainbert.labelled.label_names import NAMES_KEY
from domainbert.labelled.row_values import Row, is_whole_number
from domainbert.labelled.rows import parallel_rows
from domainbert.labelled.sets import LabelledFile, Single

_ROWS = 2000
_LINES = 50_000
_SAME_WIDTH = 0.95  # of the lines of a file of columns; its strict reader names the others
_TABLES: Mapping[str, Kind] = {".csv": "csv", ".tsv": "tsv"}
_JSON, _JSON_ARRAY = re.compile(r"\s*[\[{]"), re.compile(r"\s*\[")
_WORDS = ("tokens", "words")
_TAGS = ("tags", "ner_tags", "pos_tags", "labels")


@dataclass(frozen=True)
class Sample:
    """The beginning of a labelled file."""

    path: Path
    kind: Kind | Literal["folder"]
    """`lines` where texts and labels stand in two files."""

    rows: Sequence[Row] = ()
    """The first rows of JSONL, CSV or TSV, or of two files with `text` and `label`; columns of CSV are strings."""

    words: Sequence[Sequence[str]] = ()
    """The columns of the first words of CoNLL; of comments and lines between sentences there is nothing."""

    value: Any = None
    """Content of a JSON file that is not one of lines."""

    quoting: Literal["double", "none"] = "double"
    """Of CSV and TSV: none if the rows are whole only where quotes are characters like any other."""

    asked: Mapping[str, str] = field(default_factory=dict)
    """Settings that the user gives for it: `text_key`, `text_pair_key`, `label_key`."""

    @property
    def is_table(self) -> bool:
        """Whether it has rows with a text and labels each."""
        return bool(self.rows)


def look_at(file: Single, asked: Mapping[str, str]) -> Sample:
    """The beginning of a file, or of a text and a label file; `DomainbertError` if it cannot be read."""
    if isinstance(file, LabelledFile) and file.label is not None:
        rows = parallel_rows(file.texts, file.label, "text", "label")
        return Sample(file.texts, "lines", rows=[row for _, row in islice(rows, _ROWS)], asked=asked)
    path = file if isinstance(file, Path) else file.texts
    if path.is_dir():
        return Sample(path, "folder", asked=asked)
    if not (first := look(path)):
        raise DomainbertError(f"{path}: is empty; expected labelled texts")
    kind = evident_kind(first) or _TABLES.get(format_suffix(path))
    if kind == "jsonl" and not _holds_a_whole(first):
        value = _parsed(path) if _JSON_ARRAY.match("".join(first)) else None
        return Sample(path, kind, rows=_some(json_rows(path, Problems(str(path)))), value=value, asked=asked)
    if kind == "jsonl" or (kind is None and first and _JSON.match("".join(first))):
        return Sample(path, "json", value=_parsed(path), asked=asked)
    if kind == "csv" or kind == "tsv":
        table, problems = _table(path, kind, "double")
        plain, others = _table(path, kind, "none") if problems.messages else ([], problems)
        if plain and not others.messages:
            return Sample(path, kind, rows=plain, asked=asked, quoting="none")
        return Sample(path, kind, rows=table, asked=asked)
    return Sample(path, "conll", words=_columns(path), asked=asked)


def _some(rows: Iterable[tuple[int, Row]]) -> list[Row]:
    return [row for _, row in islice(rows, _ROWS)]


def _holds_a_whole(first: Sequence[str]) -> bool:
    """Whether a line of JSON is a whole file: an object that holds lists of objects, as SQuAD's on one line."""
    try:
        line: Row = next((json.loads(line) for line in first if line.strip().startswith("{")), {})
    except (ValueError, RecursionError):
        return False  # who reads the rows names the line
    return isinstance(line.get("data"), list)


def _parsed(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None  # the reader of a task says what is wrong


def _table(path: Path, kind: Kind, quoting: str) -> tuple[list[Row], Problems]:
    problems = Problems(str(path))
    rows = csv_rows(path, "," if kind == "csv" else "\t", problems, quoting == "double")
    _, header = next(rows, (1, []))
    return [dict(zip(header, columns, strict=True)) for _, columns in islice(rows, _ROWS)], problems


def _columns(path: Path) -> list[list[str]]:
    """The columns of the words of a file, if nearly all its lines have the same number of them, two or more."""
    with closing(read_lines(path)) as lines:
        content = [
            line
            for _, line in islice(lines, _LINES)
            if line.strip(" \t") and not line.startswith(("#", "-DOCSTART-", " -DOCSTART-"))
        ]
    tabs = 2 * sum("\t" in line for line in content) > len(content)
    split = [line.split("\t") if tabs else re.split(" +", line.strip(" ")) for line in content]
    width, count = next(iter(Counter(map(len, split)).most_common(1)), (0, 0))
    if width < 2 or count < _SAME_WIDTH * len(split):
        return []
    return [columns for columns in split if len(columns) == width]


@dataclass(frozen=True)
class TaggedSample:
    """The tags of some words."""

    tags: Sequence[str]
    reason: str
    """Their place."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a `TaggedColumns` that are not as usual."""


def tagged_sample(sample: Sample) -> TaggedSample | None:
    """The tags of a sample: the last column of CoNLL, or lists beside those of words; None if it has none."""
    if sample.words:
        width = len(sample.words[0])
        return TaggedSample([columns[-1] for columns in sample.words], f"in the last of {width} columns")
    first = sample.rows[0] if sample.rows and sample.kind == "jsonl" else {}
    words = next((key for key in _WORDS if isinstance(first.get(key), list)), None)
    asked = (sample.asked["label_key"],) if "label_key" in sample.asked else _TAGS
    tags = next((key for key in asked if words is not None and isinstance(first.get(key), list)), None)
    if words is None or tags is None:
        return None
    columns = {"token_column": words} if words != _WORDS[0] else {}
    columns |= {"tag_column": tags} if tags not in _TAGS[:2] or sum(key in first for key in _TAGS) > 1 else {}
    found = list(_names(sample.rows, tags, first.get(NAMES_KEY)))
    return TaggedSample(found, f"under {tags!r}", columns)


def _names(rows: Sequence[Row], key: str, names: Any) -> Iterator[str]:
    """The tags of all rows; numbers as the names that the first row gives them."""
    for row in rows:
        values = row.get(key)
        for value in values if isinstance(values, list) else []:
            if is_whole_number(value) and isinstance(names, list) and 0 <= value < len(names):
                yield str(names[value])
            else:
                yield str(value)
