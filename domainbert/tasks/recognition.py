"""The task that a labelled file is for, by its beginning: each task says whether a file looks like one of its own."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.file_kind import Kind, evident_kind, look
from domainbert.corpus.files import format_suffix, read_lines, read_text
from domainbert.corpus.rows import csv_rows, json_rows
from domainbert.settings.choices import choices_of, concrete_subclasses, find_choice
from domainbert.settings.tree import nearest
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.labelled_set import LabelledFile, Single
from domainbert.tasks.set_rows import Row, parallel_rows

_ROWS = 2000
_LINES = 50_000
_SHOWN = 40  # characters of a value
_SAME_WIDTH = 0.95  # of the lines of a file of columns; its strict reader names the others
_TABLES: Mapping[str, Kind] = {".csv": "csv", ".tsv": "tsv"}
_JSON, _JSON_ARRAY = re.compile(r"\s*[\[{]"), re.compile(r"\s*\[")


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


@dataclass(frozen=True)
class Recognised:
    """A task that a file seems to be for."""

    task: TaskConfig
    """With the keys and columns of the file."""

    reason: str
    """The part of the file that says so."""

    specificity: int = 1
    """Measure of how much of the file the task explains; of several tasks the one with most is taken."""

    others: tuple[str, ...] = ()
    """Further tasks that the file may be for, by the names of their classes."""


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


def recognise(sample: Sample, task: str | None = None) -> Recognised:
    """The task that a file is for, of those that claim it the most specific; or the one of this name.

    Raises:
        DomainbertError: no task claims it, and why; two are equally specific; or the one of this name does not.
    """
    kinds = [_named(task)] if task is not None else _known()
    found, problems = [], Problems(str(sample.path))
    for kind in kinds:
        try:
            if (one := kind.recognises(sample)) is not None:
                found.append(one)
        except DomainbertError as error:
            problems.messages += [problem for problem in error.problems if problem not in problems.messages]
    if not found:
        problems.raise_if_any()
        known = ", ".join(kind.__name__ for kind in kinds)
        raise DomainbertError(
            f"{sample.path}: does not look like a labelled file of {known} "
            f"(docs/reference/labelled-files.md){_first_row(sample)}"
        )
    found.sort(key=lambda one: -one.specificity)
    best, names = found[0], [type(one.task).__name__ for one in found]
    if len(found) > 1 and found[1].specificity == best.specificity:
        claims = "; ".join(f"{name}: {one.reason}" for name, one in list(zip(names, found, strict=True))[:2])
        raise DomainbertError(f"{sample.path}: may be for {names[0]} or {names[1]} ({claims}); expected --task NAME")
    return Recognised(best.task, best.reason, best.specificity, tuple(names[1:]))


def _first_row(sample: Sample) -> str:
    """The first row, for a person, its values cut; empty where there are none."""
    if not sample.rows:
        return ""
    cut = [f"{key}: {json.dumps(value, ensure_ascii=False)[:_SHOWN]}" for key, value in sample.rows[0].items()]
    return f"; its first row has {', '.join(cut)}"


def _named(name: str) -> type[TaskConfig]:
    kind = find_choice(TaskConfig, name)
    if kind is None:
        raise DomainbertError(f"--task: no task {name!r}; {nearest(name, list(choices_of(TaskConfig)))}")
    found: type[TaskConfig] = kind
    return found


def _known() -> list[type[TaskConfig]]:
    choices_of(TaskConfig)  # imports ours
    return sorted(concrete_subclasses(TaskConfig), key=lambda kind: kind.__name__)
