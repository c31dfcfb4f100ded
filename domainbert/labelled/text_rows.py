"""Rows of files that hold a text and its labels each: JSONL, CSV, TSV. Free of torch."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

from domainbert.base.errors import DomainbertError, Problems, listed
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import FileKind, Kind, look, tell_kind
from domainbert.corpus.rows import csv_rows, json_rows
from domainbert.labelled.conll import read_words
from domainbert.labelled.formats import RowFormat, TextFormat
from domainbert.labelled.items import Notes
from domainbert.labelled.json_values import is_whole_number, problem_with_strings, problem_with_text, shown
from domainbert.labelled.label_names import as_whole, is_visible, label_names, list_in, number_of, refuse_other_names
from domainbert.labelled.set_rows import Row, accepted, parallel_rows, problems_with_slices, slices_of, with_slices
from domainbert.labelled.sets import LabelledFile, Single

_DELIMITERS: dict[Kind, str] = {"csv": ",", "tsv": "\t"}

Stretch = tuple[int, int]
"""The first character, and the one after the last."""
Found = TypeVar("Found")
Given = TypeVar("Given")


def refuse(*found: str) -> None:
    """Raise `DomainbertError` with all that is wrong with one row, each filled string a problem."""
    problems = Problems("row")
    for problem in filter(None, found):
        problems.add(problem)
    problems.raise_if_any()


def stretch_of(text: str, value: Mapping[str, Any]) -> Stretch:
    """The characters of a text that an object with `start` and `end` names, and perhaps quotes as its `text`.

    `DomainbertError` if these are no numbers, outside the text, or what stands there is something else.
    """
    start, end = (value.get(key, value.get(f"{key}_offset")) for key in ("start", "end"))
    if not is_whole_number(start) or not is_whole_number(end):
        expected = "expected numbers of characters (doccano calls them start_offset and end_offset)"
        raise DomainbertError(f"start {shown(start)}, end {shown(end)}; {expected}")
    if not 0 <= start < end <= len(text):
        raise DomainbertError(f"characters {start}-{end}; expected some of the {len(text)} of the text, end exclusive")
    own = value.get("text")
    if isinstance(own, str) and own != text[start:end]:
        found = f"characters {start}-{end} are {reprlib.repr(text[start:end])}, its text is {reprlib.repr(own)}"
        raise DomainbertError(f"{found}; expected the same (offsets count Unicode characters, not bytes)")
    return start, end


def words_inside(text: str, stretch: Stretch, words: Sequence[Stretch]) -> tuple[int, int]:
    """The words that a stretch of a text covers: the number of the first, and the number behind the last.

    `DomainbertError` if the stretch does not begin and end with words.
    """
    start, end = stretch
    inside = [number for number, word in enumerate(words) if word[0] < end and word[1] > start]
    ends = [words[number] for number in (*inside[:1], *inside[1:][-1:])]
    if inside and (ends[0][0], ends[-1][1]) == stretch:
        return inside[0], inside[-1] + 1
    there = ", ".join(map(partial(shown_stretch, text), ends)) or "some word"
    found = f"{shown_stretch(text, stretch)} is not on the borders of words"
    raise DomainbertError(f"{found}; expected it to begin and end as {there} does")


def shown_stretch(text: str, stretch: Stretch) -> str:
    """A stretch of a text for a message: `'Cash' (0-4)`."""
    return f"{reprlib.repr(text[slice(*stretch)])} ({stretch[0]}-{stretch[1]})"


def parsed(rows: Iterable[tuple[int, Given]], problems: Problems, parse: Callable[[Given, int], Found]) -> list[Found]:
    """The result of `parse` for each row and line; where it raises `DomainbertError`, that is noted as a problem."""
    found = []
    for line, row in rows:
        try:
            found.append(parse(row, line))
        except DomainbertError as error:
            for problem in error.problems:
                problems.add(f"{problems.subject}:{line}: {problem}")
    return found


def file_kind(path: Path, asked: Kind | Literal["auto"], expected: tuple[Kind, ...], setting: str) -> FileKind:
    """Kind of a file as the user says it, or its first lines; a stream is refused, for they would be lost.

    `setting` is the key by which the user says it, for messages.
    """
    check_regular(path)
    return tell_kind(path, look(path), expected, setting) if asked == "auto" else FileKind(asked)


def rows_of(
    path: Path, kind: Kind, keys: Sequence[str], problems: Problems, quoted: bool = True
) -> Iterator[tuple[int, Row]]:
    """The rows of JSONL, or of CSV or TSV below the header, by key, each with its line; `keys` are one column each."""
    if kind == "jsonl":
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
    file: Single, format: RowFormat, problems: Problems, notes: Notes
) -> tuple[Kind, Iterator[tuple[int, Row]]]:
    """The kind of a file of texts, and its rows with their lines, without those that `accepted` leaves out.

    Broken rows are noted as problems. A file that is not of the format at all raises `DomainbertError`.
    """
    one = file if isinstance(file, LabelledFile) else LabelledFile(file)
    if one.label is not None:
        _check_parallel(one, format)
        kind: Kind = "lines"
        rows = parallel_rows(one.texts, one.label, format.text_key, format.label_key)
    else:
        kind = file_kind(one.texts, format.kind, ("jsonl", "csv", "tsv"), "format.kind").kind
        keys = [*format.keys, *(key for key in format.by if key not in one.by)]
        rows = rows_of(one.texts, kind, keys, problems, format.quoting == "double")
    return kind, accepted(with_slices(rows, one, problems), notes.left_out, (*format.keys, *format.by))


def _check_parallel(file: LabelledFile, format: RowFormat) -> None:
    """`DomainbertError` where the format says what two files with a text and a label a line cannot be."""
    for name, usual in (("kind", "auto"), ("text_pair_key", None)):
        if getattr(format, name) != usual:
            raise DomainbertError(f"{file}: has its labels in {file.label}; expected no format.{name}, or one file")


def text_rows(
    file: Single, format: TextFormat, problems: Problems, notes: Notes
) -> tuple[Kind, list[str] | None, Iterator[tuple[int, Row]]]:
    """As `rows_of_texts`, with the names of labels that stand there as numbers, between the two; `as_whole` changes
    labels."""
    kind, rows = rows_of_texts(file, format, problems, notes)
    rows = _with_whole_labels(rows, format.label_key, kind != "jsonl", notes.changed)
    for line, row in rows:
        first = row if kind == "jsonl" else {}
        names = label_names(format.label_names, format.label_names_file, first, f"{file}:{line}")
        all_rows = chain([(line, row)], rows)
        return kind, names, _with_names_of(first, all_rows, problems) if kind == "jsonl" else all_rows
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


class LabelReader:
    """Reads labels under a key that are strings or numbers from 0, which stand for `names`; without these not both."""

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

    def problem_with(self, row: Row, line: int) -> str:
        """The reason why the row has no label, or an empty string."""
        value = row.get(self.key)
        numbered = is_whole_number(value)
        if not numbered:
            problem = problem_with_text(row, self.key).replace("expected a string", "expected a string or whole number")
            if problem or not is_visible(str(value)):
                expected = "expected visible characters and no white space around them"
                return problem or f"{self.key!r} is {shown(value)}; {expected}"
            if list_in(str(value)) is not None:
                return f"{self.key!r} is {shown(value)}, a list; expected one label (the task MultiLabel reads lists)"
        if self.names is not None:
            known = value in self.names or self._number(value) is not None
            if self._unclear and not numbered and known:
                found = f"label {shown(value)} may be a name or a number from 0, for the names are {listed(self.names)}"
                return f"{found}; expected names that are no such numbers, or no label_names where the labels are names"
            return "" if known else f"label {shown(value)}; expected one of {listed(self.names)}, or its number from 0"
        self._first = self._first or (numbered, line)
        if numbered != self._first[0]:
            words = [f"a {'number' if one else 'string'}" for one in (numbered, self._first[0])]
            return f"{self.key!r} is {shown(value)}, {words[0]}; expected {words[1]} as in line {self._first[1]}"
        return f"{self.key!r} is {shown(value)}; expected a number from 0" if numbered and int(str(value)) < 0 else ""

    def name(self, value: Any) -> str:
        """The name of a label without a problem."""
        number = None if self.names is None or value in self.names else self._number(value)
        return str(value) if self.names is None or number is None else self.names[number]

    def _number(self, value: Any) -> int | None:
        return number_of(value, self.names or ())
