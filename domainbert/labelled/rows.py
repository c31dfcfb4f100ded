"""Rows of files that hold a text and its labels each: JSONL, CSV, TSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, Problems, listed
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import FileKind, Kind, look, tell_kind
from domainbert.corpus.files import read_lines
from domainbert.corpus.rows import Rows, csv_rows, json_rows
from domainbert.labelled.conll import read_words
from domainbert.labelled.formats import RowFormat, TextFormat
from domainbert.labelled.items import Notes
from domainbert.labelled.label_names import as_whole, label_names, refuse_other_names
from domainbert.labelled.row_values import (
    Found,
    Row,
    is_whole_number,
    parsed,
    problem_with_strings,
    problem_with_text,
    refuse,
)
from domainbert.labelled.sets import LabelledFile, Readable

_DELIMITERS: dict[Kind, str] = {"csv": ",", "tsv": "\t"}
_ANSWER, _NOT_ACCEPTED = "answer", ("reject", "ignore")  # of Prodigy, which keeps such texts in its export


def file_kind(path: Path | Rows, asked: Kind | Literal["auto"], expected: tuple[Kind, ...], setting: str) -> FileKind:
    """Kind of a file as the user says it, or its first lines; a stream is refused, for they would be lost.

    `setting` is the key by which the user says it, for messages. Rows in memory are of a kind by themselves, which is
    read where JSONL is.
    """
    if isinstance(path, Rows):
        if "jsonl" not in expected:
            raise DomainbertError(f"{path}: rows in memory; expected a file")
        return FileKind("rows")
    check_regular(path)
    return tell_kind(path, look(path), expected, setting) if asked == "auto" else FileKind(asked)


def has_json_values(kind: Kind) -> bool:
    """Whether the values of rows have types, as in JSON; columns of CSV are strings."""
    return kind in ("jsonl", "rows")


def rows_of(
    path: Path | Rows, kind: Kind, keys: Sequence[str], problems: Problems, quoted: bool = True
) -> Iterator[tuple[int, Row]]:
    """The rows of JSONL, or of CSV or TSV below the header, by key, each with its line; `keys` are one column each."""
    if has_json_values(kind) or isinstance(path, Rows):
        return json_rows(path, problems)
    rows = csv_rows(path, _DELIMITERS[kind], problems, quoted)
    line, header = next(rows, (1, []))
    wrong = [key for key in keys if header and header.count(key) != 1]
    for key in wrong:
        found = f"{header.count(key) or 'no'} column{'s' if key in header else ''} {key!r}"
        problems.add(f"{path}:{line}: {found}; the header names {listed(header)}")
    if wrong:
        problems.raise_if_any()
    return ((line, dict(zip(header, columns, strict=True))) for line, columns in rows)


def text_problems(row: Row, format: RowFormat) -> list[str]:
    """Problems with the text of a row, or with those of its pair, and with its slices; empty strings where nothing
    is."""
    keys = (format.text_key, format.text_pair_key)
    return [*(problem_with_text(row, key) for key in keys if key is not None), *problems_with_slices(row, format.by)]


def text_fields(row: Row, format: RowFormat) -> dict[str, Any]:
    """The text of a row, or those of its pair, and its slices, as the fields of a `TextItem`."""
    second = None if format.text_pair_key is None else row[format.text_pair_key]
    return {"text": row[format.text_key], "text_pair": second, "by": slices_of(row, format.by)}


def rows_of_texts(
    file: Readable, format: RowFormat, problems: Problems, notes: Notes
) -> tuple[Kind, Iterator[tuple[int, Row]]]:
    """The kind of a file of texts, and its rows with their lines, without those that `accepted` leaves out.

    Broken rows are noted as problems. A file that is not of the format at all raises `DomainbertError`.
    """
    one = LabelledFile(file) if isinstance(file, Path) else file
    if isinstance(one, LabelledFile) and one.label is not None:
        _check_parallel(one, format)
        kind: Kind = "lines"
        rows = parallel_rows(one.texts, one.label, format.text_key, format.label_key)
    else:
        source = one if isinstance(one, Rows) else one.texts
        kind = file_kind(source, format.kind, ("jsonl", "csv", "tsv"), "format.kind").kind
        keys = [*format.keys, *(key for key in format.by if key not in one.by)]
        rows = rows_of(source, kind, keys, problems, format.quoting == "double")
    return kind, accepted(with_slices(rows, one, problems), notes.left_out, (*format.keys, *format.by))


def _check_parallel(file: LabelledFile, format: RowFormat) -> None:
    """`DomainbertError` where the format says what two files with a text and a label a line cannot be."""
    for name, usual in (("kind", "auto"), ("text_pair_key", None)):
        if getattr(format, name) != usual:
            raise DomainbertError(f"{file}: has its labels in {file.label}; expected no format.{name}, or one file")


def text_rows(
    file: Readable, format: TextFormat, problems: Problems, notes: Notes
) -> tuple[Kind, list[str] | None, Iterator[tuple[int, Row]]]:
    """As `rows_of_texts`, with the names of labels that stand there as numbers, between the two; `as_whole` changes
    labels."""
    kind, rows = rows_of_texts(file, format, problems, notes)
    typed = has_json_values(kind)
    rows = _with_whole_labels(rows, format.label_key, not typed, notes.changed)
    for line, row in rows:
        first = row if typed else {}
        names = label_names(format.label_names, format.label_names_file, first, f"{file}:{line}")
        all_rows = chain([(line, row)], rows)
        return kind, names, _with_names_of(first, all_rows, problems) if typed else all_rows
    return kind, None, rows


def _with_whole_labels(
    rows: Iterable[tuple[int, Row]], key: str, are_columns: bool, changed: Counter[str]
) -> Iterator[tuple[int, Row]]:
    for line, row in rows:
        values = row[key] if isinstance(row.get(key), list) else [row.get(key)]
        whole = [as_whole(value, are_columns) for value in values]
        if count := sum(one is not other for one, other in zip(whole, values, strict=True)):
            row[key] = whole if isinstance(row[key], list) else whole[0]
            changed["labels such as 1.0, read as 1"] += count
        yield line, row


def _with_names_of(first: Row, rows: Iterable[tuple[int, Row]], problems: Problems) -> Iterator[tuple[int, Row]]:
    """The rows, but for those that give the labels other names than the first, which are noted."""
    for line, row in rows:
        try:
            refuse_other_names(row, first)
        except DomainbertError as error:
            problems.add(f"{problems.subject}:{line}: {error}")
        else:
            yield line, row


def read_words_or_texts(path: Path) -> list[str]:
    """The words of a tagged file, or the texts of one with classes or entities, whatever its labels.

    They stand where they usually do: in the first column of CoNLL, under "tokens" or "text" in JSONL, "text" in CSV,
    the second of a pair under "text_pair".
    """
    kind = file_kind(path, "auto", ("conll", "jsonl", "csv", "tsv"), setting="")
    print(f"{path}: read as {kind}")
    if kind.kind == "conll":
        return [word for sentence in read_words(path) for word in sentence]
    problems = Problems(str(path))

    def words_of(row: Row, _: int) -> list[str]:
        if kind.kind == "jsonl" and "tokens" in row:
            refuse(problem_with_strings(row, "tokens"))
            words: list[str] = row["tokens"]
            return words
        keys = ["text", *(["text_pair"] if "text_pair" in row else [])]
        refuse(*(problem_with_text(row, key, may_be_empty=True) for key in keys))
        return [row[key] for key in keys]

    found = parsed(rows_of(path, kind.kind, ["text"], problems), problems, words_of)
    problems.raise_if_any()
    return [word for words in found for word in words]


def some_texts(items: list[Found], format: RowFormat, problems: Problems) -> list[Found]:
    """The items of a file that has been read; `DomainbertError` if it had problems, or no text."""
    problems.raise_if_any()
    if not items:
        expected = f"expected at least one with {' and '.join(map(repr, format.keys))}"
        raise DomainbertError(f"{problems.subject}: no texts; {expected}")
    return items


def parallel_rows(texts: Path, labels: Path, text_key: str, label_key: str) -> Iterator[tuple[int, Row]]:
    """Rows of two files, line by line, under these keys; `DomainbertError` where one has more lines."""
    files = texts, labels
    for path in files:
        check_regular(path)
    columns = [[line for _, line in read_lines(path)] for path in files]
    if len(columns[0]) != len(columns[1]):
        (less, other), (more, longer) = sorted(zip(map(len, columns), files, strict=True))
        expected = "expected a label in each line for the text in the same line"
        raise DomainbertError(f"{longer}:{less + 1}: {more:,} lines, but {other} has {less:,}; {expected}")
    pairs = zip(*columns, strict=True)
    return ((line, {text_key: text, label_key: label}) for line, (text, label) in enumerate(pairs, 1))


def with_slices(
    rows: Iterator[tuple[int, Row]], file: LabelledFile | Rows, problems: Problems
) -> Iterator[tuple[int, Row]]:
    """The rows with the slices of the whole file; a row that has a key of these itself is noted as a problem."""
    for line, row in rows:
        if twice := [key for key in file.by if key in row]:
            problems.add(f"{file}:{line}: {twice[0]!r} is in the row and in `by` of the file; expected one of them")
        yield line, {**row, **file.by}


def accepted(
    rows: Iterable[tuple[int, Row]], left_out: Counter[str], keys: Collection[str] = ()
) -> Iterator[tuple[int, Row]]:
    """The rows without the texts that an annotator rejected or ignored in Prodigy (`answer`), which are counted; all
    rows if `answer` is one of the `keys` that a task reads."""
    for line, row in rows:
        if _ANSWER not in keys and row.get(_ANSWER) in _NOT_ACCEPTED:
            left_out["texts that were not accepted"] += 1
        else:
            yield line, row


def is_answer(rows: Iterable[Row], key: str) -> bool:
    """Whether Prodigy has written the values of a key: what an annotator thought of the text, which is no label."""
    return key == _ANSWER and all(row.get(key) in ("accept", *_NOT_ACCEPTED) for row in rows)


def placed(problem: str, file: Readable, line: int) -> str:
    """A problem with a label, with its place where labels have a file of their own; an empty string is none."""
    if not problem or not isinstance(file, LabelledFile) or file.label is None:
        return problem
    return f"{problem} ({file.label}:{line})"


def problems_with_slices(row: Row, by: Sequence[str]) -> list[str]:
    """The reasons why a row is not in a slice of each key."""
    found = [problem_with_text(row, key) for key in by if not is_whole_number(row.get(key))]
    return [problem.replace("expected a string", "expected a string or whole number") for problem in found if problem]


def slices_of(row: Row, by: Sequence[str]) -> dict[str, str]:
    """The slices of a row without problems, by key."""
    return {key: str(row[key]) for key in by}
