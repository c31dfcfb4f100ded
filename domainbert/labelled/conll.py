"""Reads CoNLL files, one word per line in columns, with checks of the number of columns and of line breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from statistics import mode
from typing import Literal, NamedTuple

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.corpus.file_kind import CONLLU_COLUMNS, Kind, is_word_numbering, strip_conllu_extras
from domainbert.corpus.files import Line
from domainbert.labelled.formats import LabelNames, SchemeChoice, TaggedColumns

# characters that end a line for some programs, but not in a CoNLL file
_BREAK = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_LINE_ENDS = r"only \n or \r\n as line ends: remove it, or replace it by \n"
_WORDS = "one word per line, with its columns"
_NO_NAME = frozenset(["-X-", "O", "_", "-"])  # columns of a mark that stand for a missing value, as in CoNLL-2003
_MAX_LINES = 1_000_000  # of a sentence, which is held in memory
_DOCSTART = re.compile(r" *-DOCSTART-(?=[ \t]|$)")
_BETWEEN = re.compile(rf"[ \t]*\Z|{_DOCSTART.pattern}")  # lines between sentences
_GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*")


Row = tuple[int, list[str]]
"""Line of a word, and its columns."""


class Columns(NamedTuple):
    """How the columns of a file are separated, and how many there are; `expected` is "4 as in line 1" for messages."""

    separator: Literal["tabs", "spaces"]
    width: int
    expected: str

    def split(self, line: str) -> list[str]:
        """Return the columns of a line; a no-break space or a control character belongs to its word."""
        return line.split("\t") if self.separator == "tabs" else re.split(" +", line.strip(" "))

    def index_of(self, path: Path, column: int | str, names: Sequence[str] | None, option: str) -> int:
        """Return the index of a column, from 0, given the value of `option`: one of the `names` in the header, or an
        index that may be negative."""
        if isinstance(column, str):
            names = names or []
            if names.count(column) != 1:
                count = f"{names.count(column) or 'no'} column{'s' if column in names else ''} {column!r}"
                raise DomainbertError(count, file=path, where=option, hint=f"the header names {format_names(names)}")
            return names.index(column)
        if not -self.width <= column < self.width:
            raise DomainbertError(f"no column {column}", file=path, where=option, expected=f"0 to {self.width - 1}")
        return column % self.width


class _Sentence(NamedTuple):
    document: int
    first_line: int
    words: list[Line]


class TaggedRows(NamedTuple):
    """One sentence as in the file; `lines` has the line of each word."""

    words: list[str]
    tags: list[str]
    lines: list[int]
    line: int
    document: int
    text: str | None = None
    file: Path | None = None


class Mark(NamedTuple):
    """A line that begins a document; `tag` is None if it does not have all columns, `name` the text after the mark."""

    line: int
    tag: str | None
    name: str


class TaggedTable(NamedTuple):
    """Sentences and document marks of a file, and a description of its layout; `scheme` is set if the reader made the
    tags."""

    rows: list[TaggedRows]
    marks: list[Mark]
    kind: Kind
    layout: str
    scheme: SchemeChoice | None = None


def refuse_names_for_conll(format: LabelNames, file: object) -> None:
    """Raise `DomainbertError` if the settings have label names, which a CoNLL file has in its columns."""
    for name in ("label_names", "label_names_file"):
        if getattr(format, name) is not None:
            expected = "null, or JSONL with numbers as labels"
            raise DomainbertError("set for CoNLL", file=file, where=f"format.{name}", expected=expected)


def read_columns(path: Path, lines: Iterable[Line], format: TaggedColumns) -> TaggedTable:
    """Return the sentences and document marks in the lines of a CoNLL file.

    Tabs or spaces, whichever most lines use, separate the columns. Blank lines and -DOCSTART- end a sentence; without
    -DOCSTART- each sentence is a document. Comments, multiword tokens and empty nodes of CoNLL-U are skipped.

    Raises:
        DomainbertError: no words; a sentence of more than a million lines; a row with another width, an empty column, a
            carriage return or a byte order mark; a Unicode line break outside the words; -DOCSTART- before the header.
    """
    with_header = isinstance(format.token_column, str) or isinstance(format.tag_column, str)
    names, marks, sentences, left_out = _split_sentences(path, lines, with_header)
    words = [line for sentence in sentences for line in sentence.words]
    columns = detect_columns(words, names)
    rows = _split_rows(path, words, columns)
    _check_marks(path, marks)
    token = columns.index_of(path, format.token_column, names, "format.token_column")
    tag = columns.index_of(path, format.tag_column, names, "format.tag_column")
    separator, width, _ = columns
    if token == tag:
        raise DomainbertError(
            f"column {tag} of {width} has the words", file=path, where="format.tag_column", expected="tags"
        )
    _check_breaks(path, rows, token)
    skipped = f", {left_out:,} lines of CoNLL-U without a word left out" if left_out else ""
    layout = f"CoNLL, {width} columns separated by {separator}, words in column {token}, tags in column {tag}{skipped}"
    remaining, tagged = iter(rows), []
    for index, sentence in enumerate(sentences):
        numbers, columns_of_rows = zip(*islice(remaining, len(sentence.words)), strict=True)
        tokens, tags = ([row[column] for row in columns_of_rows] for column in (token, tag))
        document = sentence.document if marks else index
        tagged.append(TaggedRows(tokens, tags, list(numbers), sentence.first_line, document))
    return TaggedTable(tagged, [_read_mark(mark, columns, tag) for mark in marks], "conll", layout)


def _split_sentences(
    path: Path, lines: Iterable[Line], with_header: bool
) -> tuple[list[str] | None, list[Line], list[_Sentence], int]:
    """Return the names in the header or None, the -DOCSTART- lines, the sentences, at least one, and the number of
    lines of CoNLL-U without a word."""
    names: list[str] | None = None
    marks: list[Line] = []
    sentences: list[_Sentence] = []
    document = left_out = 0
    for is_sentence, group in split_blocks(path, lines):
        block = list(group)
        if is_sentence and with_header and names is None:
            line_number, header = block.pop(0)
            if marks:  # they would be part of the first document, and missing in the other folds
                found = "-DOCSTART- before the names of the columns"
                raise DomainbertError(found, file=path, line=line_number, expected="the names in the first line")
            names = _column_names(header)
        if not is_sentence and (new_marks := [line for line in block if _DOCSTART.match(line[1])]):
            marks += new_marks
            document = sentences[-1].document + 1 if sentences else 0  # words before the first mark: document 0
        elif is_sentence and block:
            words = strip_conllu_extras(block)  # never empty: a block of only comments is returned unchanged
            sentences.append(_Sentence(document, block[0][0], words))
            left_out += len(block) - len(words)
    if not sentences:
        raise DomainbertError("no words", file=path, expected=_WORDS)
    return names, marks, sentences, left_out


def _read_mark(mark: Line, expected: Columns, tag_column: int) -> Mark:
    number, line = mark
    columns = expected.split(line)
    name = " ".join(column for column in columns[1:] if column not in _NO_NAME)
    return Mark(number, columns[tag_column] if len(columns) == expected.width else None, name)


def split_blocks(
    path: Path, lines: Iterable[Line], between: re.Pattern[str] = _BETWEEN
) -> Iterator[tuple[bool, Iterable[Line]]]:
    """Yield True with the lines of each sentence, and False with the lines `between` sentences.

    Raise `DomainbertError` in a sentence that is too long, without reading it to its end.
    """
    for is_sentence, group in groupby(lines, key=lambda line: not between.match(line[1])):
        if not is_sentence:
            yield False, group
            continue
        sentence = list(islice(group, _MAX_LINES + 1))
        if len(sentence) > _MAX_LINES:
            found, line = f"the sentence has more than {_MAX_LINES:,} lines", sentence[-1][0]
            raise DomainbertError(found, file=path, line=line, expected="a blank line after each sentence")
        yield True, sentence


def read_words(path: Path, lines: Iterable[Line], token_column: int | str | None = 0) -> Iterator[list[str]]:
    """Yield the words of each sentence of a CoNLL file, with or without tags, while reading its lines.

    The first sentence determines the separator and the number of columns, and the `token_column` None: 1 in CoNLL-U, 0
    in other files. Raise `DomainbertError` as `read_columns`, and if the column holds the word numbers of CoNLL-U.
    """
    names: list[str] | None = None
    columns: Columns | None = None
    for is_row, group in split_blocks(path, lines):
        if not is_row:
            _check_marks(path, group)
            continue
        sentence = list(group)
        if isinstance(token_column, str) and names is None:
            _, header = sentence.pop(0)
            names = _column_names(header)
        if sentence:
            sentence = strip_conllu_extras(sentence)
            columns = columns or detect_columns(sentence, names)
            rows = _split_rows(path, sentence, columns)
            is_numbered = columns.width == CONLLU_COLUMNS and is_word_numbering([row[0] for _, row in rows])
            if token_column is None:
                token_column = 1 if is_numbered else 0
            column = columns.index_of(path, token_column, names, "token_column")
            _check_breaks(path, rows, column)
            words = [row[column] for _, row in rows]
            if is_numbered and column == 0:
                found = "column 0 holds word numbers, as in CoNLL-U"
                raise DomainbertError(found, file=path, line=sentence[0][0], expected="token_column: 1")
            yield words
    if columns is None:
        raise DomainbertError("no words", file=path, expected=_WORDS)


def _column_names(header: str) -> list[str]:
    return re.split(r"[ \t]+", _GLOBAL_COLUMNS.sub("", header).strip(" \t"))


def detect_columns(rows: Sequence[Line], names: list[str] | None = None) -> Columns:
    """Return the separator of most rows, and the number of columns: of the header (`names`), or else of most rows."""
    with_tabs = sum("\t" in line for _, line in rows)
    columns = Columns("tabs" if 2 * with_tabs > len(rows) else "spaces", 0, "")
    if names:
        return columns._replace(width=len(names), expected=f"{len(names)} as in the header")
    widths = [len(columns.split(line)) for _, line in rows]
    width = mode(widths)
    return columns._replace(width=width, expected=f"{width} as in line {rows[widths.index(width)][0]}")


def _split_rows(path: Path, lines: Sequence[Line], expected: Columns) -> list[Row]:
    problems = Problems(str(path))
    rows: list[Row] = []
    for line_number, line in lines:
        columns = expected.split(line)
        problem = wanted = ""
        if "\r" in line:  # a file whose lines end in bare \r would be a single row
            problem, wanted = "a carriage return inside the line", _LINE_ENDS
        elif line.startswith("\ufeff"):
            problem, wanted = "a byte order mark", "it only at the beginning of the file"
        elif len(columns) != expected.width:
            problem = f"{len(columns)} column{'' if len(columns) == 1 else 's'} separated by {expected.separator}"
            wanted = expected.expected
        elif "" in columns:
            problem, wanted = f"column {columns.index('')} is empty", f"{expected.width} filled columns"
        elif expected.separator == "spaces" and "\t" in line:
            problem, wanted = "a tab", "spaces between columns, as in most lines"
        if problem:
            problems.add(problem, file=path, line=line_number, expected=wanted)
        rows.append((line_number, columns))
    problems.raise_if_any()
    return rows


def _check_breaks(path: Path, rows: Sequence[Row], word_column: int) -> None:
    # in a word, a line break is data, and other columns such as the lemma may repeat it; elsewhere it was meant to end
    # the line, and the words after it would be lost
    problems = Problems(str(path))
    for line, columns in rows:
        for index, column in enumerate(columns):
            if (match := _BREAK.search(column)) and not _BREAK.search(columns[word_column]):
                problems.add(f"U+{ord(match[0]):04X} in column {index}", file=path, line=line, expected=_LINE_ENDS)
    problems.raise_if_any()


def _check_marks(path: Path, lines: Iterable[Line]) -> None:
    problems = Problems(str(path))
    for line_number, line in lines:
        if _DOCSTART.match(line) and (match := _BREAK.search(line)):  # words after it would be ignored with this line
            problems.add(f"U+{ord(match[0]):04X} after -DOCSTART-", file=path, line=line_number, expected=_LINE_ENDS)
    problems.raise_if_any()
