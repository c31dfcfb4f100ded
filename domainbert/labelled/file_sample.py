"""First rows of a labelled file, from which tasks recognise its format."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.file_kind import Kind, evident_kind, read_first_lines
from domainbert.corpus.files import format_suffix, read_lines, read_text
from domainbert.corpus.rows import csv_rows, json_rows
from domainbert.labelled.label_names import NAMES_KEY
from domainbert.labelled.row_values import Row, is_whole_number
from domainbert.labelled.rows import parallel_rows
from domainbert.labelled.sets import LabelledFile, Single

_ROWS = 2000
_LINES = 50_000
_SAME_WIDTH = 0.95  # minimum share of lines with the same number of columns; the reader reports the others
_TABLES: Mapping[str, Kind] = {".csv": "csv", ".tsv": "tsv"}
_JSON, _JSON_ARRAY = re.compile(r"\s*[\[{]"), re.compile(r"\s*\[")
_WORDS = ("tokens", "words")
_TAGS = ("tags", "ner_tags", "pos_tags", "labels")


@dataclass(frozen=True)
class Sample:
    """First rows or words of a labelled file."""

    path: Path
    kind: Kind | Literal["folder"]
    """`lines` if texts and labels are in two files."""

    rows: Sequence[Row] = ()
    """First rows of JSONL, CSV or TSV, or `text` and `label` from two files; CSV values are strings."""

    words: Sequence[Sequence[str]] = ()
    """Columns of the first words of CoNLL, without comments and empty lines."""

    value: Any = None
    """Content of a JSON file, other than JSON Lines."""

    quoting: Literal["double", "none"] = "double"
    """Quoting of CSV and TSV: `none` if the rows have equal widths only when quotes are ordinary characters."""

    options: Mapping[str, str] = field(default_factory=dict)
    """Options set by the user: `text_key`, `text_pair_key`, `label_key`."""

    @property
    def is_table(self) -> bool:
        """Whether the file consists of rows with a text and labels."""
        return bool(self.rows)


def read_sample(file: Single, options: Mapping[str, str]) -> Sample:
    """Read the beginning of a file, or of a text file and its label file; raise `DomainbertError` if that fails."""
    if isinstance(file, LabelledFile) and file.label is not None:
        pairs = parallel_rows(file.texts, file.label, "text", "label")
        return Sample(file.texts, "lines", rows=[row for _, row in islice(pairs, _ROWS)], options=options)
    path = file if isinstance(file, Path) else file.texts
    if path.is_dir():
        return Sample(path, "folder", options=options)
    if not (first := read_first_lines(path)):
        raise DomainbertError(f"{path}: is empty; expected labelled texts")
    kind = evident_kind(first) or _TABLES.get(format_suffix(path))
    if kind == "jsonl" and not _is_one_object(first):
        value = _parsed(path) if _JSON_ARRAY.match("".join(first)) else None
        rows = [row for _, row in islice(json_rows(path, Problems(str(path))), _ROWS)]
        return Sample(path, kind, rows=rows, value=value, options=options)
    if kind == "jsonl" or (kind is None and first and _JSON.match("".join(first))):
        return Sample(path, "json", value=_parsed(path), options=options)
    if kind == "csv" or kind == "tsv":
        table, problems = _table(path, kind, "double")
        plain, others = _table(path, kind, "none") if problems.messages else ([], problems)
        if plain and not others.messages:
            return Sample(path, kind, rows=plain, options=options, quoting="none")
        return Sample(path, kind, rows=table, options=options)
    return Sample(path, "conll", words=_columns(path), options=options)


def _is_one_object(first: Sequence[str]) -> bool:
    """Whether the first JSON line is the whole file: an object with a `data` list, as SQuAD on one line."""
    try:
        line: Row = next((json.loads(line) for line in first if line.strip().startswith("{")), {})
    except (ValueError, RecursionError):
        return False  # the reader of the rows reports the line
    return isinstance(line.get("data"), list)


def _parsed(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None  # the reader of the task reports the problem


def _table(path: Path, kind: Kind, quoting: str) -> tuple[list[Row], Problems]:
    problems = Problems(str(path))
    rows = csv_rows(path, "," if kind == "csv" else "\t", problems, quoting == "double")
    _, header = next(rows, (1, []))
    return [dict(zip(header, columns, strict=True)) for _, columns in islice(rows, _ROWS)], problems


def _columns(path: Path) -> list[list[str]]:
    """Columns of the lines, if nearly all lines have the same number of columns, two or more."""
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
    """Tags of the first words."""

    tags: Sequence[str]
    reason: str
    """Location of the tags, for messages."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `TaggedColumns` that differ from the defaults."""


def tagged_sample(sample: Sample) -> TaggedSample | None:
    """Tags of a sample: the last column of CoNLL, or a list parallel to the words; None if there are none."""
    if sample.words:
        width = len(sample.words[0])
        return TaggedSample([columns[-1] for columns in sample.words], f"in the last of {width} columns")
    first = sample.rows[0] if sample.rows and sample.kind == "jsonl" else {}
    words = next((key for key in _WORDS if isinstance(first.get(key), list)), None)
    keys = (sample.options["label_key"],) if "label_key" in sample.options else _TAGS
    tags = next((key for key in keys if words is not None and isinstance(first.get(key), list)), None)
    if words is None or tags is None:
        return None
    columns = {"token_column": words} if words != _WORDS[0] else {}
    columns |= {"tag_column": tags} if tags not in _TAGS[:2] or sum(key in first for key in _TAGS) > 1 else {}
    return TaggedSample(list(_names(sample.rows, tags, first.get(NAMES_KEY))), f"under {tags!r}", columns)


def _names(rows: Sequence[Row], key: str, names: Any) -> Iterator[str]:
    """Yield the tags of all rows; numbers are replaced by `names`, if possible."""
    for row in rows:
        values = row.get(key)
        for value in values if isinstance(values, list) else []:
            if is_whole_number(value) and isinstance(names, list) and 0 <= value < len(names):
                yield str(names[value])
            else:
                yield str(value)
