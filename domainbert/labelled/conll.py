"""Reads CoNLL files, one word per line in columns, with checks of the number of columns and of line breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from statistics import mode
from typing import Literal, NamedTuple

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.corpus.file_kind import CONLLU_COLUMNS, is_word_numbering, strip_conllu_extras
from domainbert.corpus.files import Line

# characters that end a line for some programs, but not in a CoNLL file
_BREAK = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_LINE_ENDS = r"expected only \n or \r\n as line ends: remove it, or replace it by \n"
_NO_WORDS = "no words; expected one word per line, with its columns"
_MAX_LINES = 1_000_000  # of a sentence, which is held in memory
_DOCSTART = re.compile(r" *-DOCSTART-(?=[ \t]|$)")
_GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*")


class Columns(NamedTuple):
    """How the columns of a file are separated, and how many there are."""

    separator: Literal["tabs", "spaces"]
    width: int
    expected: str
    """Text of the number for messages, such as "4 as in line 1"."""

    def split(self, line: str) -> list[str]:
        """Return the columns of a line, split at U+0020 only or at tabs only: a no-break space or a control character
        belongs to its word."""
        return line.split("\t") if self.separator == "tabs" else re.split(" +", line.strip(" "))


class Row(NamedTuple):
    """The columns of one word, and its line in the file."""

    line: int
    columns: list[str]


class Block(NamedTuple):
    """The rows of one sentence, and its document number, from 0."""

    document: int
    rows: list[Row]
    line: int
    """First line of the sentence, including the comments of a treebank."""


@dataclass(frozen=True)
class Table:
    """The words of a CoNLL file; each row has `columns.width` non-empty columns."""

    path: Path
    columns: Columns
    names: list[str] | None
    blocks: list[Block]
    marks: list[Row]
    """The `-DOCSTART-` lines: outside blocks, with any number of columns."""
    left_out: int = 0
    """Skipped lines of a treebank: comments, multiword tokens, empty nodes."""

    def column_index(self, column: int | str, option: str) -> int:
        """Return the index of a column, from 0, given the value of `option`: a name, or an index that may be negative.

        Raise `DomainbertError` if the column does not exist, or the header repeats its name.
        """
        if isinstance(column, str):
            names = self.names or []
            if names.count(column) != 1:
                count = f"{names.count(column) or 'no'} column{'s' if column in names else ''} {column!r}"
                raise DomainbertError(f"{self.path}: {option}: {count}; the header names {format_names(names)}")
            return names.index(column)
        width = self.columns.width
        if not -width <= column < width:
            raise DomainbertError(f"{self.path}: {option}: no column {column}; expected 0 to {width - 1}")
        return column % width

    def check_breaks(self, word_column: int) -> None:
        """Raise `DomainbertError` for Unicode line breaks (U+2028, form feed, ...) outside the column of the words.

        In a word, a line break is data, and other columns such as the lemma may repeat it. Elsewhere it was meant to
        end the line, and the words after it would be lost.
        """
        problems = Problems(str(self.path))
        for row in (row for block in self.blocks for row in block.rows):
            for index, column in enumerate(row.columns):
                if (match := _BREAK.search(column)) and not _BREAK.search(row.columns[word_column]):
                    problems.add(f"{self.path}:{row.line}: U+{ord(match[0]):04X} in column {index}; {_LINE_ENDS}")
        problems.raise_if_any()


def read_table(path: Path, lines: Iterable[Line], with_header: bool) -> Table:
    """Return the table of a CoNLL file, whose columns are separated by tabs or by spaces, whichever most lines use.

    Blank lines and -DOCSTART- end a sentence; without -DOCSTART- each sentence is a document. Comments, multiword
    tokens and empty nodes of CoNLL-U are skipped. With `with_header` the first line names the columns.

    Raises:
        DomainbertError: the file cannot be read or has no words; a sentence has more than a million lines; a row has a
            different width, an empty column, a carriage return or a byte order mark.
    """
    names: list[str] | None = None
    marks: list[Line] = []
    sentences: list[tuple[int, int, list[Line]]] = []  # document, first line, lines of the words
    document = left_out = 0
    for is_row, group in split_blocks(path, lines):
        block = list(group)
        if is_row and with_header and names is None:
            _, header = block.pop(0)
            names = _column_names(header)
        if not is_row and (new_marks := [line for line in block if _DOCSTART.match(line[1])]):
            marks += new_marks
            document = sentences[-1][0] + 1 if sentences else 0  # words before the first mark belong to document 0
        elif is_row and block:
            words = strip_conllu_extras(block)  # never empty: a block of only comments is returned unchanged
            sentences.append((document, block[0][0], words))
            left_out += len(block) - len(words)
    if not sentences:
        raise DomainbertError(f"{path}: {_NO_WORDS}")
    columns = detect_columns([line for *_, words in sentences for line in words], names)
    problems = Problems(str(path))
    blocks = [
        Block(document if marks else index, _split_rows(words, columns, problems), first_line)
        for index, (document, first_line, words) in enumerate(sentences)
    ]
    problems.raise_if_any()
    _check_marks(path, marks)
    mark_rows = [Row(number, columns.split(line)) for number, line in marks]
    return Table(path, columns, names, blocks, mark_rows, left_out)


def _is_row(line: Line) -> bool:
    return bool(line[1].strip(" \t")) and not _DOCSTART.match(line[1])


def split_blocks(
    path: Path, lines: Iterable[Line], is_row: Callable[[Line], bool] = _is_row
) -> Iterator[tuple[bool, Iterable[Line]]]:
    """Yield True with the lines of each sentence (`is_row`), and False with the lines between sentences.

    Raise `DomainbertError` in a sentence that is too long, without reading it to its end.
    """
    for is_sentence, group in groupby(lines, key=is_row):
        if not is_sentence:
            yield False, group
            continue
        sentence = list(islice(group, _MAX_LINES + 1))
        if len(sentence) > _MAX_LINES:
            found = f"{path}:{sentence[-1][0]}: the sentence has more than {_MAX_LINES:,} lines"
            raise DomainbertError(f"{found}; expected a blank line after each sentence")
        yield True, sentence


def read_words(path: Path, lines: Iterable[Line], token_column: int | str = 0) -> Iterator[list[str]]:
    """Yield a list of the words of each sentence of a CoNLL file, with or without tags, while reading it.

    The first sentence determines the separator and the number of columns.

    Args:
        path: the file.
        lines: numbered lines of the file.
        token_column: index of the word column, from 0 (negative from the end), or its name in the first line.

    Raises:
        DomainbertError: as `read_table` and `Table.check_breaks`, for the first invalid sentence; the column holds the
            word numbers of CoNLL-U.
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
            problems = Problems(str(path))
            block = Block(0, _split_rows(sentence, columns, problems), sentence[0][0])
            problems.raise_if_any()
            yield _words_of_block(Table(path, columns, names, [block], marks=[]), token_column)
    if columns is None:
        raise DomainbertError(f"{path}: {_NO_WORDS}")


def _words_of_block(table: Table, token_column: int | str) -> list[str]:
    (block,) = table.blocks
    column = table.column_index(token_column, "token_column")
    table.check_breaks(column)
    words = [row.columns[column] for row in block.rows]
    if table.columns.width == CONLLU_COLUMNS and column == 0 and is_word_numbering(words):
        expected = "expected token_column: 1"
        raise DomainbertError(f"{table.path}:{block.line}: column 0 holds word numbers, as in CoNLL-U; {expected}")
    return words


def _column_names(header: str) -> list[str]:
    """Return the names in a header line, which may begin with `# global.columns =`, as in CoNLL-U Plus."""
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


def _split_rows(lines: Sequence[Line], expected: Columns, problems: Problems) -> list[Row]:
    """Return the columns of each line; add lines without `expected.width` non-empty columns, with a carriage return or
    with a byte order mark to `problems`."""
    rows = []
    for line_number, line in lines:
        columns = expected.split(line)
        problem = ""
        if "\r" in line:  # a file whose lines end in bare \r would be a single row
            problem = f"a carriage return inside the line; {_LINE_ENDS}"
        elif line.startswith("\ufeff"):
            problem = "a byte order mark; expected it only at the beginning of the file"
        elif len(columns) != expected.width:
            count = f"{len(columns)} column{'' if len(columns) == 1 else 's'} separated by {expected.separator}"
            problem = f"{count}; expected {expected.expected}"
        elif "" in columns:
            problem = f"column {columns.index('')} is empty; expected {expected.width} filled columns"
        elif expected.separator == "spaces" and "\t" in line:
            problem = "a tab; expected spaces between columns, as in most lines"
        if problem:
            problems.add(f"{problems.subject}:{line_number}: {problem}")
        rows.append(Row(line_number, columns))
    return rows


def _check_marks(path: Path, lines: Iterable[Line]) -> None:
    """Raise `DomainbertError` if a -DOCSTART- line contains a Unicode line break."""
    problems = Problems(str(path))
    for line_number, line in lines:
        if _DOCSTART.match(line) and (match := _BREAK.search(line)):  # words after it would be ignored with this line
            problems.add(f"{path}:{line_number}: U+{ord(match[0]):04X} after -DOCSTART-; {_LINE_ENDS}")
    problems.raise_if_any()
