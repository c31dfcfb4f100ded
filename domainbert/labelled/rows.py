"""Reads files with a text and its labels per row: JSONL, CSV, TSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import Kind, file_kind
from domainbert.corpus.files import read_lines
from domainbert.corpus.rows import Rows, csv_rows, json_rows
from domainbert.labelled.conll import read_words
from domainbert.labelled.formats import RowFormat, TextFormat
from domainbert.labelled.items import AnyItem, ReaderCounts, TextFile
from domainbert.labelled.label_names import label_names, refuse_other_names, to_integer
from domainbert.labelled.row_values import (
    Parsed,
    Row,
    is_whole_number,
    parse_rows,
    problem_with_strings,
    problem_with_text,
    raise_problems,
)
from domainbert.labelled.sets import LabelledFile, Readable, path_of

_DELIMITERS: dict[Kind, str] = {"csv": ",", "tsv": "\t"}
_SEPARATED: dict[Kind, str] = {
    "csv": "commas or semicolons (for tabs, set format.kind to tsv)",
    "tsv": "tabs (for commas or semicolons, set format.kind to csv)",
}
_ANSWER_KEY, _NOT_ACCEPTED = "answer", ("reject", "ignore")  # Prodigy exports rejected and ignored texts, too


def has_json_values(kind: Kind) -> bool:
    """Whether values have types, as in JSON; columns of CSV are strings."""
    return kind in ("jsonl", "rows")


def iterate_rows(
    path: Path | Rows,
    kind: Kind,
    keys: Sequence[str],
    problems: Problems,
    quoted: bool = True,
    hint: str = "",
    lines: Iterable[tuple[int, str]] | None = None,
) -> Iterator[tuple[int, Row]]:
    """Return an iterator over the `(line, row)` pairs of JSONL, CSV or TSV, or of rows in memory.

    With `quoted` False, a quote in CSV or TSV is an ordinary character. Raise `DomainbertError` if a CSV header does
    not name each of `keys` exactly once; `hint` ends the message. `lines` are the numbered lines of the file, if
    they are already read.
    """
    if has_json_values(kind) or isinstance(path, Rows):
        return json_rows(path, problems, lines)
    rows = csv_rows(path, _DELIMITERS[kind], problems, quoted, lines)
    line, header = next(rows, (1, []))
    if len(header) == 1 < len(keys):  # probably another delimiter
        found = f"a single column, {format_names(header)}"
        raise DomainbertError(f"{path}:{line}: {found}; expected columns separated by {_SEPARATED[kind]}")
    wrong = [key for key in keys if header and header.count(key) != 1]  # an empty file has no header
    for key in wrong:
        count = f"{header.count(key) or 'no'} column{'s' if key in header else ''} {key!r}"
        problems.add(f"{path}:{line}: {count}; the header names {format_names(header)}{'' if key in header else hint}")
    if wrong:
        problems.raise_if_any()
    return ((line, dict(zip(header, columns, strict=True))) for line, columns in rows)


def text_problems(row: Row, format: RowFormat) -> list[str]:
    """Return the problem with each text of a row ("" if it is valid), and the problems with its slices."""
    keys = {"format.text_key": format.text_key, "format.text_pair_key": format.text_pair_key}
    problems = [problem_with_text(row, key, option=option) for option, key in keys.items() if key is not None]
    return problems + problems_with_slices(row, format.slice_keys)


def text_fields(row: Row, format: RowFormat) -> dict[str, Any]:
    """Return the fields of a `TextItem`: text, second text of a pair, slices."""
    second = None if format.text_pair_key is None else row[format.text_pair_key]
    return {"text": row[format.text_key], "text_pair": second, "slices": slices_of(row, format.slice_keys)}


def iterate_text_rows(
    file: Readable, format: RowFormat, problems: Problems, notes: ReaderCounts
) -> tuple[Kind, Iterator[tuple[int, Row]]]:
    """Return the kind of a file of texts and an iterator over its `(line, row)` pairs, with slices of the file.

    Texts that an annotator rejected in Prodigy are left out and counted in `notes`. Invalid rows are added to
    `problems`. Raise `DomainbertError` if the file does not have the `format`.
    """
    source = LabelledFile(file) if isinstance(file, Path) else file
    if isinstance(source, LabelledFile) and source.label is not None:
        kind: Kind = "lines"
        rows = _rows_of_two_files(source.texts, source.label, format)
    else:
        path = source if isinstance(source, Rows) else source.texts
        kind = file_kind(path, format.kind, ("jsonl", "csv", "tsv"), "format.kind").kind
        keys = [*format.keys, *(key for key in format.slice_keys if key not in source.slices)]
        hint = " (set format.text_key, label_key or slice_keys, or add a header)"
        rows = iterate_rows(path, kind, keys, problems, format.quoting == "double", hint)
    rows = _with_slices(rows, source, problems)
    return kind, without_rejected(rows, notes.left_out, keys=(*format.keys, *format.slice_keys))


def _rows_of_two_files(texts: Path, labels: Path, format: RowFormat) -> Iterator[tuple[int, Row]]:
    """Return `parallel_rows` of the two files; raise `DomainbertError` for settings that need a single file."""
    for name, default in (("kind", "auto"), ("text_pair_key", None)):
        if getattr(format, name) != default:
            found = f"found {getattr(format, name)!r}, but the labels are in a separate file, {labels}"
            raise DomainbertError(f"{texts}: format.{name}: {found}; expected one file for both, or no format.{name}")
    return parallel_rows(texts, labels, format.text_key, format.label_key)


def read_texts(
    file: Readable, format: RowFormat, item: Callable[[dict[str, Any], Any, int], AnyItem]
) -> TextFile[AnyItem]:
    """Return the items of a file of texts, or pairs of texts, with one label each.

    Args:
        file: JSONL, CSV or TSV, or rows in memory.
        format: keys or columns of text and label.
        item: builds an item from the fields of a `TextItem`, the value of the label and the line. Raises
            `DomainbertError` for an invalid label.

    Raises:
        DomainbertError: the format cannot be detected; a row without text or label; no text; an error of `item`.
    """
    problems, notes = Problems(str(file)), ReaderCounts()
    kind, rows = iterate_text_rows(file, format, problems, notes)

    def parse(row: Row, line: int) -> AnyItem:
        missing = "" if format.label_key in row else problem_with_text(row, format.label_key, option="format.label_key")
        raise_problems(*text_problems(row, format), with_location(missing, file, line))
        return item(text_fields(row, format), row[format.label_key], line)

    items = require_texts(parse_rows(rows, problems, parse), format, problems)
    return TextFile(path_of(file), items, kind, notes=notes)


def iterate_labelled_rows(
    file: Readable, format: TextFormat, problems: Problems, notes: ReaderCounts
) -> tuple[Kind, list[str] | None, Iterator[tuple[int, Row]]]:
    """Return the kind of a file of texts, the names of its numeric labels or None, and an iterator over its
    `(line, row)` pairs. Labels such as 1.0 are converted by `to_integer`; other arguments as in `iterate_text_rows`."""
    kind, rows = iterate_text_rows(file, format, problems, notes)
    typed = has_json_values(kind)
    rows = _with_whole_labels(rows, format.label_key, are_columns=not typed, changed=notes.changed)
    first = next(rows, None)
    if first is None:
        return kind, None, iter(())
    line, row = first
    first_row = row if typed else {}  # a row of CSV cannot list names
    names = label_names(format.label_names, format.label_names_file, first_row, f"{file}:{line}")
    rows = chain([first], rows)
    if typed:
        rows = _rows_with_same_label_names(rows, first_row, problems)
    return kind, names, rows


def _with_whole_labels(
    rows: Iterable[tuple[int, Row]], key: str, are_columns: bool, changed: Counter[str]
) -> Iterator[tuple[int, Row]]:
    """Yield the rows with labels such as 1.0 converted to 1; count them in `changed`.

    `are_columns`: the rows are from CSV, where labels are strings.
    """
    for line, row in rows:
        values = row[key] if isinstance(row.get(key), list) else [row.get(key)]
        new_values = [to_integer(value, are_columns) for value in values]  # a value without change is returned as it is
        if num_changed := sum(new is not old for new, old in zip(new_values, values, strict=True)):
            row[key] = new_values if isinstance(row[key], list) else new_values[0]
            changed["labels such as 1.0, read as 1"] += num_changed
        yield line, row


def _rows_with_same_label_names(
    rows: Iterable[tuple[int, Row]], first_row: Row, problems: Problems
) -> Iterator[tuple[int, Row]]:
    """Yield the rows, except rows whose label names differ from the first row's; add these to `problems`."""
    for line, row in rows:
        with problems.collecting(f"{problems.subject}:{line}: "):
            refuse_other_names(row, first_row)
            yield line, row


def read_words_or_texts(path: Path) -> list[str]:
    """Return the words of a tagged file, or the texts of other labelled files, without the labels.

    Only the default locations are read: the first column of CoNLL, "tokens" or "text" in JSONL, "text" in CSV, and
    "text_pair" for second texts.
    """
    kind = file_kind(path, "auto", ("conll", "jsonl", "csv", "tsv"), setting="")
    print(f"{path}: read as {kind}")
    if kind.kind == "conll":
        return [word for sentence in read_words(path) for word in sentence]
    problems = Problems(str(path))

    def words_of(row: Row, _: int) -> list[str]:
        if kind.kind == "jsonl" and "tokens" in row:
            raise_problems(problem_with_strings(row, "tokens"))
            words: list[str] = row["tokens"]
            return words
        keys = ["text", *(["text_pair"] if "text_pair" in row else [])]
        raise_problems(*(problem_with_text(row, key, may_be_empty=True) for key in keys))
        return [row[key] for key in keys]

    rows = iterate_rows(path, kind.kind, ["text"], problems)
    words = [word for row_words in parse_rows(rows, problems, words_of) for word in row_words]
    problems.raise_if_any()
    return words


def require_texts(items: list[Parsed], format: RowFormat, problems: Problems) -> list[Parsed]:
    """Return `items`; raise `DomainbertError` if the file had problems, or no text."""
    problems.raise_if_any()
    if not items:
        expected = f"expected at least one row with {' and '.join(map(repr, format.keys))}"
        raise DomainbertError(f"{problems.subject}: no texts; {expected}")
    return items


def parallel_rows(texts: Path, labels: Path, text_key: str, label_key: str) -> Iterator[tuple[int, Row]]:
    """Return an iterator over `(line, row)` pairs from the lines of a text file and a label file.

    Raise `DomainbertError` if the files have different numbers of lines.
    """
    files = texts, labels
    for path in files:
        check_regular(path)
    columns = [[line for _, line in read_lines(path)] for path in files]
    if len(columns[0]) != len(columns[1]):
        (fewer, shorter), (more, longer) = sorted(zip(map(len, columns), files, strict=True))
        expected = "expected the same number: each line has the label of the text in the same line"
        raise DomainbertError(f"{longer}:{fewer + 1}: found {more:,} lines, but {shorter} has {fewer:,}; {expected}")
    pairs = zip(*columns, strict=True)
    return ((line, {text_key: text, label_key: label}) for line, (text, label) in enumerate(pairs, 1))


def _with_slices(
    rows: Iterator[tuple[int, Row]], file: LabelledFile | Rows, problems: Problems
) -> Iterator[tuple[int, Row]]:
    """Yield each row with the slices of the whole file; a row that already has such a key is added to `problems`."""
    for line, row in rows:
        if duplicates := [key for key in file.slices if key in row]:
            found = f"{duplicates[0]!r} is a key of the row and of `slices` in the settings"
            problems.add(f"{file}:{line}: {found}; expected it in only one of the two")
        yield line, {**row, **file.slices}


def without_rejected(
    rows: Iterable[tuple[int, Row]], left_out: Counter[str], keys: Collection[str] = ()
) -> Iterator[tuple[int, Row]]:
    """Yield the rows, except texts that an annotator rejected or ignored in Prodigy (`answer`), which are counted.

    All rows are yielded if `answer` is one of the `keys` that the task reads.
    """
    for line, row in rows:
        if _ANSWER_KEY not in keys and row.get(_ANSWER_KEY) in _NOT_ACCEPTED:
            left_out["texts that were not accepted"] += 1
        else:
            yield line, row


def is_prodigy_answer(rows: Iterable[Row], key: str) -> bool:
    """Whether a key holds Prodigy's answers (accept, reject, ignore), which are not labels."""
    return key == _ANSWER_KEY and all(row.get(key) in ("accept", *_NOT_ACCEPTED) for row in rows)


def with_location(problem: str, file: Readable, line: int) -> str:
    """Return a problem with a label, followed by the label's location if labels are in a separate file.

    Return "" if `problem` is "".
    """
    if not problem or not isinstance(file, LabelledFile) or file.label is None:
        return problem
    return f"{problem} ({file.label}:{line})"


def problems_with_slices(row: Row, slice_keys: Sequence[str]) -> list[str]:
    """Return the reasons why values of the slice keys are missing or invalid; [] if all are valid."""
    text_keys = (key for key in slice_keys if not is_whole_number(row.get(key)))  # a whole number is valid
    problems = filter(None, (problem_with_text(row, key, option="format.slice_keys") for key in text_keys))
    return [problem.replace("expected a string", "expected a string or whole number") for problem in problems]


def slices_of(row: Row, slice_keys: Sequence[str]) -> dict[str, str]:
    """Return the slices of a valid row: value by key."""
    return {key: str(row[key]) for key in slice_keys}
