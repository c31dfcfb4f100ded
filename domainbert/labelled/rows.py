"""Reads files with a text and its labels per row: JSONL, CSV, TSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import is_not
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import FileKind, Kind
from domainbert.corpus.files import read_lines
from domainbert.corpus.rows import TYPED_KINDS, Row, Rows, open_file
from domainbert.labelled.conll import read_words
from domainbert.labelled.formats import RowFormat, TextFormat
from domainbert.labelled.items import AnyItem, ReaderCounts, TextFile
from domainbert.labelled.label_names import LabelReader, label_names, refuse_other_names
from domainbert.labelled.row_values import (
    Parsed,
    is_whole_number,
    parse_rows,
    problem_with_strings,
    problem_with_text,
    raise_problems,
    to_integer,
    wrong_value,
)
from domainbert.labelled.sets import LabelledFile, Readable

_ANSWER_KEY, _NOT_ACCEPTED = "answer", ("reject", "ignore")  # Prodigy exports rejected and ignored texts, too


class TextRows:
    """Rows of a file of texts, or pairs of texts, which is opened once.

    Args:
        file: JSONL, CSV or TSV, a text file with a label file, or rows in memory.
        format: keys or columns of text and labels.

    Attributes:
        path: path of the texts; the name of rows in memory.
        kind: kind of the file; `lines` if texts and labels are in two files.
        has_types: whether values have types, as in JSON; columns of CSV are strings.
        rows: iterator over the `(line, row)` pairs, with the slices of the whole file. Texts that an annotator rejected
            in Prodigy are left out. If labels have names, a label such as 1.0 becomes 1.
        names: names of the labels of CSV, after `label_reader`; a label that is a name stays unchanged.
        problems: invalid rows.
        notes: counts of texts left out and labels changed.

    Raises:
        DomainbertError: the file does not have the `format`.
    """

    def __init__(self, file: Readable, format: RowFormat) -> None:
        self.file, self.path, self.format = file, Path(str(file)), format
        self.problems, self.notes = Problems(str(file)), ReaderCounts()
        self.slices = {} if isinstance(file, Path) else file.slices
        self.label_file = file.label if isinstance(file, LabelledFile) else None
        self.names: Sequence[str] = ()
        self.kind: Kind = "lines"
        if self.label_file is not None:
            rows = _rows_of_two_files(self.path, self.label_file, format)
        else:
            opened = open_file(file if isinstance(file, Rows) else self.path, format.kind, ("jsonl", "csv", "tsv"))
            keys = [*format.keys, *(key for key in format.slice_keys if key not in self.slices)]
            hint = " (set format.text_key, label_key or slice_keys, or add a header)"
            rows = opened.rows(self.problems, keys, format.quoting == "double", hint)
            self.kind = opened.kind
        self.has_types = self.kind in TYPED_KINDS
        self.rows = self._accepted(rows)

    def _accepted(self, rows: Iterable[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
        """Yield the rows that no annotator has rejected, with the slices of the settings and with names as labels."""
        format, key, first_row = self.format, self.format.label_key, None
        for line, row in without_rejected(rows, self.notes.left_out, keys=(*format.keys, *format.slice_keys)):
            if duplicates := [key for key in self.slices if key in row]:
                found = f"{duplicates[0]!r} is a key of the row and of `slices` in the settings"
                self.problems.add(found, file=self.file, line=line, expected="it in only one of the two")
            row.update(self.slices)
            with self.problems.collecting(file=self.file, line=line):
                if isinstance(format, TextFormat):
                    if isinstance(row.get(key), list):
                        row[key] = self.with_integers(row[key])
                    elif key in row:
                        row[key] = self.with_integers([row[key]])[0]
                    first_row = row if first_row is None else first_row
                    if self.has_types:
                        refuse_other_names(row, first_row)
                yield line, row

    def with_integers(self, labels: Sequence[Any]) -> list[Any]:
        """Return the labels with 1.0 as 1, counted in `notes`; in CSV "1.0" as "1", unless it is a name."""
        is_column = not self.has_types
        integers = [label if label in self.names else to_integer(label, is_column) for label in labels]
        if num_changed := sum(map(is_not, integers, labels)):  # an unchanged label is returned itself
            self.notes.changed["labels such as 1.0, read as 1"] += num_changed
        return integers

    def label_reader(self, format: TextFormat) -> LabelReader:
        """Return the reader of the labels, with their names in the settings or in the first row."""
        names = None
        if not self.has_types:  # a row of CSV cannot list names
            names = label_names(format, {}, str(self.file))
            self.names = names or ()  # before the first row is read
        elif first := next(self.rows, None):
            line, row = first
            names = label_names(format, row, f"{self.file}:{line}")
            self.rows = chain([first], self.rows)
        return LabelReader(format.label_key, names)

    def valid_rows(
        self, label_problem: Callable[[Row, int], DomainbertError | None]
    ) -> Iterator[tuple[int, Row, dict[str, Any]]]:
        """Yield line and content of each valid row, and the fields of a `TextItem`: text, second text of a pair,
        slices. `label_problem(row, line)` returns the error of an invalid label."""
        text_key, pair_key, slice_keys = self.format.text_key, self.format.text_pair_key, self.format.slice_keys
        for line, row in self.rows:
            with self.problems.collecting(file=self.file, line=line):
                error = label_problem(row, line)
                raise_problems(
                    problem_with_text(row, text_key, option="format.text_key"),
                    None if pair_key is None else problem_with_text(row, pair_key, option="format.text_pair_key"),
                    *problems_with_slices(row, slice_keys),
                    self.with_location(error, line),
                )
                second = None if pair_key is None else row[pair_key]
                slices = {key: str(row[key]) for key in slice_keys}
                yield line, row, {"text": row[text_key], "text_pair": second, "slices": slices}

    def with_location(self, error: DomainbertError | None, line: int) -> DomainbertError | None:
        """Return an error of a label, if there is one, also with its place in a label file."""
        return error.also_at(f"{self.label_file}:{line}") if error and self.label_file is not None else error

    def require(self, items: list[Parsed]) -> list[Parsed]:
        """Return `items`; raise one `DomainbertError` for all problems of the file, or if it has no text."""
        self.problems.raise_if_any()
        if not items:
            expected = f"at least one row with {' and '.join(map(repr, self.format.keys))}"
            raise DomainbertError("no texts", file=self.file, expected=expected)
        return items


def read_texts(
    file: Readable, format: RowFormat, item: Callable[[dict[str, Any], Any, int], AnyItem]
) -> TextFile[AnyItem]:
    """Return the items of a file of texts, or pairs of texts, with one label each.

    `item` builds an item from the fields of a `TextItem`, the value of the label and the line. It raises
    `DomainbertError` for an invalid label.
    """
    source, key = TextRows(file, format), format.label_key

    def missing(row: Row, line: int) -> DomainbertError | None:
        return None if key in row else wrong_value(row, key, "", "format.label_key")

    items = []
    for line, row, fields in source.valid_rows(missing):
        with source.problems.collecting(file=file, line=line):
            items.append(item(fields, row[key], line))
    return TextFile(source.path, source.require(items), source.kind, notes=source.notes)


def read_words_or_texts(path: Path) -> list[str]:
    """Return the words of a tagged file, or the texts of other labelled files: the first column of CoNLL, the second of
    CoNLL-U, "tokens" or "text" in JSONL, "text" in CSV, and "text_pair" for second texts."""
    file = open_file(path, "auto", ("conll", "jsonl", "csv", "tsv"), setting="")
    print(f"{path}: read as {FileKind(file.kind, file.columns)}")
    if file.kind == "conll":
        return [word for sentence in read_words(path, file.lines, token_column=None) for word in sentence]
    problems = Problems(str(path))

    def words_of(row: Row, _: int) -> list[str]:
        if file.kind == "jsonl" and "tokens" in row:
            raise_problems(problem_with_strings(row, "tokens"))
            words: list[str] = row["tokens"]
            return words
        keys = ["text", *(["text_pair"] if "text_pair" in row else [])]
        raise_problems(*(problem_with_text(row, key, may_be_empty=True) for key in keys))
        return [row[key] for key in keys]

    words = list(chain(*parse_rows(file.rows(problems, ["text"]), problems, words_of)))
    problems.raise_if_any()
    return words


def _rows_of_two_files(texts: Path, labels: Path, format: RowFormat) -> Iterator[tuple[int, Row]]:
    for name, default in (("kind", "auto"), ("text_pair_key", None)):
        if getattr(format, name) != default:
            found = f"{getattr(format, name)!r}, but the labels are in a separate file, {labels}"
            expected = f"one file for both, or no format.{name}"
            raise DomainbertError(file=texts, where=f"format.{name}", found=found, expected=expected)
    return parallel_rows(texts, labels, format.text_key, format.label_key)


def parallel_rows(texts: Path, labels: Path, text_key: str, label_key: str) -> Iterator[tuple[int, Row]]:
    """Return an iterator over `(line, row)` pairs from the parallel lines of a text file and a label file."""
    files = texts, labels
    check_regular(*files)
    columns = [[line for _, line in read_lines(path)] for path in files]
    if len(columns[0]) != len(columns[1]):
        (fewer, shorter), (more, longer) = sorted(zip(map(len, columns), files, strict=True))
        expected = "the same number: each line has the label of the text in the same line"
        raise DomainbertError(
            file=longer, line=fewer + 1, found=f"{more:,} lines, but {shorter} has {fewer:,}", expected=expected
        )
    pairs = zip(*columns, strict=True)
    return ((line, {text_key: text, label_key: label}) for line, (text, label) in enumerate(pairs, 1))


def without_rejected(
    rows: Iterable[tuple[int, Row]], left_out: Counter[str], keys: Collection[str] = ()
) -> Iterator[tuple[int, Row]]:
    """Yield the rows, except texts that an annotator rejected or ignored in Prodigy (`answer`), which are counted; all
    rows if `answer` is one of the `keys` that the task reads."""
    for line, row in rows:
        if _ANSWER_KEY not in keys and row.get(_ANSWER_KEY) in _NOT_ACCEPTED:
            left_out["texts that were not accepted"] += 1
        else:
            yield line, row


def is_prodigy_answer(rows: Iterable[Row], key: str) -> bool:
    """Whether a key holds Prodigy's answers (accept, reject, ignore), which are not labels."""
    return key == _ANSWER_KEY and all(row.get(key) in ("accept", *_NOT_ACCEPTED) for row in rows)


def problems_with_slices(row: Row, slice_keys: Sequence[str]) -> list[DomainbertError | None]:
    """Return the error of each slice key whose value is missing or invalid."""
    option, expected = "format.slice_keys", "a string or whole number"
    text_keys = (key for key in slice_keys if not is_whole_number(row.get(key)))
    return [problem_with_text(row, key, option=option, expected=expected) for key in text_keys]
