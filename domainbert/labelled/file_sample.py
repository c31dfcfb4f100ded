"""First rows of a labelled file, from which tasks recognise its format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.file_kind import Kind, evident_kind, first_lines
from domainbert.corpus.files import Line, format_suffix, read_lines
from domainbert.corpus.rows import OpenFile, Row, json_rows
from domainbert.labelled.conll import detect_columns
from domainbert.labelled.label_names import NAMES_KEY
from domainbert.labelled.row_values import is_whole_number
from domainbert.labelled.rows import parallel_rows
from domainbert.labelled.sets import LabelledFile, Single

_MAX_ROWS = 2000
_MAX_LINES = 50_000  # of CoNLL
_SAME_WIDTH = 0.95  # minimum share of lines with the same number of columns; the reader reports the others
_TABLES: Mapping[str, Literal["csv", "tsv"]] = {".csv": "csv", ".tsv": "tsv"}
_JSON, _JSON_ARRAY = re.compile(r"\s*[\[{]"), re.compile(r"\s*\[")
_WORD_KEYS = ("tokens", "words")
_TAG_KEYS = ("tags", "ner_tags", "pos_tags", "labels")


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


def read_sample(file: Single, options: Mapping[str, str]) -> Sample:
    """Return the first rows or words of a file, or of a text file and its label file; for `options` see `Sample`."""
    if isinstance(file, LabelledFile) and file.label is not None:
        pairs = parallel_rows(file.texts, file.label, "text", "label")
        return Sample(file.texts, "lines", rows=[row for _, row in islice(pairs, _MAX_ROWS)], options=options)
    path = file if isinstance(file, Path) else file.texts
    if path.is_dir():
        return Sample(path, "folder", options=options)
    file_lines = read_lines(path)
    with closing(file_lines):
        first = first_lines(file_lines)
        if not first:
            raise DomainbertError("is empty", file=path, expected="labelled texts")
        lines: Iterator[Line] = chain(first, file_lines)
        content = [line for _, line in first]
        kind = evident_kind(content) or _TABLES.get(format_suffix(path))
        if kind == "csv" or kind == "tsv":
            return _table_sample(path, kind, lines, options)
        if kind == "conll" or (kind is None and not _JSON.match("".join(content))):
            return Sample(path, "conll", words=_read_columns(lines), options=options)
        if kind is None or _is_one_object(content):
            return Sample(path, "json", value=_parse_json(lines), options=options)
        value = None
        if _JSON_ARRAY.match("".join(content)):  # perhaps the export of an annotation tool
            all_lines = list(lines)
            value, lines = _parse_json(all_lines), iter(all_lines)
        rows = [row for _, row in islice(json_rows(path, lines, Problems(str(path))), _MAX_ROWS)]
        return Sample(path, kind, rows=rows, value=value, options=options)


def _table_sample(path: Path, kind: Literal["csv", "tsv"], lines: Iterable[Line], options: Mapping[str, str]) -> Sample:
    rows, is_valid = _read_table(path, kind, lines, quoted=True)
    if not is_valid:  # perhaps a quote is an ordinary character
        unquoted_rows, is_valid_unquoted = _read_table(path, kind, read_lines(path), quoted=False)
        if unquoted_rows and is_valid_unquoted:
            return Sample(path, kind, rows=unquoted_rows, options=options, quoting="none")
    return Sample(path, kind, rows=rows, options=options)


def _is_one_object(first_lines: Sequence[str]) -> bool:
    # of SQuAD on one line
    try:
        line: Row = next((json.loads(line) for line in first_lines if line.strip().startswith("{")), {})
    except (ValueError, RecursionError):
        return False  # the reader of the rows reports the line
    return isinstance(line.get("data"), list)


def _parse_json(lines: Iterable[Line]) -> Any:
    try:
        return json.loads("\n".join(line for _, line in lines))
    except (ValueError, RecursionError):
        return None  # the reader of the task reports the problem


def _read_table(path: Path, kind: Literal["csv", "tsv"], lines: Iterable[Line], quoted: bool) -> tuple[list[Row], bool]:
    """Return the first rows, and whether all of them are valid."""
    problems = Problems(str(path))
    rows = OpenFile(path, kind, iter(lines)).rows(problems, quoted=quoted)
    return [row for _, row in islice(rows, _MAX_ROWS)], not problems.errors


def _read_columns(lines: Iterable[Line]) -> list[list[str]]:
    content = [
        (number, line)
        for number, line in islice(lines, _MAX_LINES)
        if line.strip(" \t") and not line.startswith(("#", "-DOCSTART-", " -DOCSTART-"))
    ]
    columns = detect_columns(content) if content else None
    if columns is None or columns.width < 2:
        return []
    rows = [row for _, line in content if len(row := columns.split(line)) == columns.width]
    return rows if len(rows) >= _SAME_WIDTH * len(content) else []


@dataclass(frozen=True)
class TaggedSample:
    """Tags of the first words of a file."""

    tags: Sequence[str]
    reason: str
    """Location of the tags, for messages."""
    format_fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `TaggedColumns` that differ from the defaults."""


def tagged_sample(sample: Sample) -> TaggedSample | None:
    """Return the tags of a sample: the last column of CoNLL, or a list parallel to the words; None without tags."""
    if sample.words:
        width = len(sample.words[0])
        return TaggedSample([columns[-1] for columns in sample.words], f"in the last of {width} columns")
    first_row = sample.rows[0] if sample.rows and sample.kind == "jsonl" else {}
    word_key = next((key for key in _WORD_KEYS if isinstance(first_row.get(key), list)), None)
    keys = (sample.options["label_key"],) if "label_key" in sample.options else _TAG_KEYS
    tag_key = next((key for key in keys if isinstance(first_row.get(key), list)), None)
    if word_key is None or tag_key is None:
        return None
    names = first_row.get(NAMES_KEY)
    name_of = dict(enumerate(names)) if isinstance(names, list) else {}
    lists = [row[tag_key] for row in sample.rows if isinstance(row.get(tag_key), list)]
    tags = [str(name_of.get(tag, tag) if is_whole_number(tag) else tag) for tag in chain(*lists)]
    format_fields = {"token_column": word_key} if word_key != _WORD_KEYS[0] else {}  # "tokens" is the default
    reader_detects_key = tag_key in _TAG_KEYS[:2] and sum(key in first_row for key in _TAG_KEYS) == 1
    if not reader_detects_key:
        format_fields["tag_column"] = tag_key
    return TaggedSample(tags, f"under {tag_key!r}", format_fields)
