"""Splits a CoNLL file into sentences of rows of columns, and refuses rows that do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Literal

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.file_kind import CONLLU_COLUMNS, count_up, without_asides
from domainbert.corpus.files import read_lines

Separator = Literal["tabs", "spaces"]
Line = tuple[int, str]

# characters that end a line for some programs, but not in a CoNLL file
_BREAK = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_LINE_ENDS = r"expected lines that end in \n or \r\n"
_NO_WORDS = "no words; expected one word a line with its columns"
_SHOWN_NAMES = 200  # characters of a header in a message
_DOCSTART = re.compile(r" *-DOCSTART-(?=[ \t]|$)")
_GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*")


@dataclass(frozen=True)
class Row:
    """The columns of one word, and its line in the file."""

    line: int
    columns: list[str]


@dataclass(frozen=True)
class Block:
    """The rows of one sentence, and the number of its document from 0."""

    document: int
    rows: list[Row]
    line: int  # where it begins, in a treebank with what is no word


@dataclass(frozen=True)
class Table:
    """A whole file; every row has `width` columns, none of them empty."""

    path: Path
    separator: Separator
    width: int
    names: list[str] | None
    blocks: list[Block]
    marks: list[Row]  # the `-DOCSTART-` lines, which belong to no block and may have any number of columns
    left_out: int = 0  # lines of a treebank that are no words

    def column_index(self, column: int | str) -> int:
        """The number from 0 of a column given by name, or by a number that may count from the end; an error if there is
        none, or the header names it twice."""
        if isinstance(column, str):
            names = self.names or []
            if names.count(column) != 1:
                found = f"{names.count(column) or 'no'} column{'s' if column in names else ''} {column!r}"
                shown = ", ".join(map(repr, names))[:_SHOWN_NAMES]
                raise DomainbertError(f"{self.path}: {found}; the header names {shown}")
            return names.index(column)
        if not -self.width <= column < self.width:
            raise DomainbertError(f"{self.path}: no column {column}; the file has {self.width}, numbered from 0")
        return column % self.width

    def check_breaks(self, word: int) -> None:
        """Refuse a line break of Unicode (U+2028, form feed, ...) outside of the column of the words.

        In a word it is data, which another column may repeat, as a lemma does. Elsewhere the program that wrote the
        file meant the end of a line, and the words after it would be lost.
        """
        problems = Problems(str(self.path))
        for row in (row for block in self.blocks for row in block.rows):
            for number, column in enumerate(row.columns):
                if (found := _BREAK.search(column)) and not _BREAK.search(row.columns[word]):
                    problems.add(f"{self.path}:{row.line}: U+{ord(found[0]):04X} in column {number}; {_LINE_ENDS}")
        problems.raise_if_any()


def read_table(path: Path, with_header: bool) -> Table:
    """Read the rows of a file, whose columns are separated by tabs or spaces, whichever most lines use. What a treebank
    in CoNLL-U has beside words (comments, multiword tokens, empty nodes) is left out.

    Raises:
        DomainbertError: the file cannot be read, holds no words, or has a row of another width, with an empty column,
            or with a carriage return or a byte order mark where none belongs.
    """
    all_lines = list(read_lines(path))
    names = None
    if with_header and (first := next(filter(_is_row, all_lines), None)):
        names = _names(first[1])
        all_lines.remove(first)
    lines, begins = _words_and_breaks(all_lines)
    content = list(filter(_is_row, lines))
    if not content:
        raise DomainbertError(f"{path}: {_NO_WORDS}")
    separator, width, expected = _shape(content, names)
    marks = [(number, line) for number, line in lines if _DOCSTART.match(line)]
    _check_rows(path, content, separator, width, expected)
    _check_marks(path, marks)
    mark_rows = [Row(number, _split(line, separator)) for number, line in marks]
    blocks = _group(lines, separator, bool(marks), begins)
    return Table(path, separator, width, names, blocks, mark_rows, len(all_lines) - len(lines))


def _is_row(line: Line) -> bool:
    return bool(line[1].strip(" \t")) and not _DOCSTART.match(line[1])


def _words_and_breaks(lines: Sequence[Line]) -> tuple[list[Line], dict[int, int]]:
    """The lines of a file; those of each sentence of a treebank without what is no word. For the first line of each
    sentence that is left also the line where it began."""
    kept: list[Line] = []
    begins: dict[int, int] = {}
    for is_row, some in groupby(lines, key=_is_row):
        sentence = list(some)
        words = without_asides(sentence) if is_row else sentence
        begins[words[0][0]] = sentence[0][0]
        kept += words
    return kept, begins


def read_words(path: Path, token_column: int | str = 0, lines: Iterable[Line] | None = None) -> Iterator[list[str]]:
    """Yield the sentences of a CoNLL file as words, whether it has tags or not, as they are read.

    The first sentence decides the separator and the number of columns. The column of the words is given by number from
    0 (negative from the end), or by name when the first line names the columns; numbered lines, if they are read
    already.

    Raises:
        DomainbertError: as `read_table` and `Table.check_breaks`, for the first sentence that is wrong; or the column
            is that of the numbers in CoNLL-U.
    """
    names: list[str] | None = None
    shape: tuple[Separator, int, str] | None = None
    sentence: list[Line] = []
    for number, line in chain(read_lines(path) if lines is None else lines, [(0, "")]):
        is_mark = _DOCSTART.match(line)
        if line.strip(" \t") and not is_mark:
            if isinstance(token_column, str) and names is None:
                names = _names(line)
            else:
                sentence.append((number, line))
            continue
        if is_mark:
            _check_marks(path, [(number, line)])
        if sentence:
            sentence = without_asides(sentence)
            shape = shape or _shape(sentence, names)
            separator, width, expected = shape
            _check_rows(path, sentence, separator, width, expected)
            table = Table(path, separator, width, names, _group(sentence, separator, False, {}), [])
            column = table.column_index(token_column)
            table.check_breaks(column)
            words = [row.columns[column] for row in table.blocks[0].rows]
            if width == CONLLU_COLUMNS and column == 0 and count_up(words):
                raise DomainbertError(
                    f"{path}:{sentence[0][0]}: column 0 numbers the words, as in CoNLL-U; expected token_column: 1"
                )
            yield words
            sentence = []
    if shape is None:
        raise DomainbertError(f"{path}: {_NO_WORDS}")


def _names(header: str) -> list[str]:
    return re.split(r"[ \t]+", _GLOBAL_COLUMNS.sub("", header).strip(" \t"))


def _shape(content: Sequence[Line], names: list[str] | None) -> tuple[Separator, int, str]:
    """The separator that most lines use, the number of columns, and the source of that number, for messages."""
    with_tabs = sum("\t" in line for _, line in content)
    separator: Separator = "tabs" if 2 * with_tabs > len(content) else "spaces"
    if names:
        return separator, len(names), f"{len(names)} as the header names"
    width = len(_split(content[0][1], separator))
    return separator, width, f"{width} as in line {content[0][0]}"


def _split(line: str, separator: Separator) -> list[str]:
    """Split a line at U+0020 only or at tabs only: a no-break space or a control character belongs to its word."""
    return line.split("\t") if separator == "tabs" else re.split(" +", line.strip(" "))


def _check_rows(path: Path, content: Sequence[Line], separator: Separator, width: int, expected: str) -> None:
    problems = Problems(str(path))
    for number, line in content:
        columns = _split(line, separator)
        if "\r" in line:  # a file with bare \r as line ends would be a single row
            problems.add(f"{path}:{number}: a carriage return inside the line; {_LINE_ENDS}")
        elif line.startswith("\ufeff"):
            problems.add(f"{path}:{number}: a byte order mark; expected none but the one that may begin the file")
        elif len(columns) != width:
            found = f"{len(columns)} column{'' if len(columns) == 1 else 's'} separated by {separator}"
            problems.add(f"{path}:{number}: {found}; expected {expected}")
        elif "" in columns:
            problems.add(f"{path}:{number}: column {columns.index('')} is empty; expected {width} filled columns")
        elif separator == "spaces" and "\t" in line:
            problems.add(f"{path}:{number}: a tab; expected spaces between columns, as in most lines")
    problems.raise_if_any()


def _check_marks(path: Path, marks: Sequence[Line]) -> None:
    problems = Problems(str(path))
    for number, line in marks:
        if found := _BREAK.search(line):  # words may follow it
            problems.add(f"{path}:{number}: U+{ord(found[0]):04X} behind -DOCSTART-; {_LINE_ENDS}")
    problems.raise_if_any()


def _group(
    lines: Sequence[Line], separator: Separator, marks_documents: bool, begins: Mapping[int, int]
) -> list[Block]:
    """Split rows into sentences, at blank lines and -DOCSTART-; without -DOCSTART- each sentence is a document.
    `begins` are the lines where sentences begin whose first row is another one."""
    blocks: list[Block] = []
    document = 0
    inside = False
    for number, line in lines:
        if _DOCSTART.match(line):
            # Words before the first mark, or none, belong to document 0.
            document = blocks[-1].document + 1 if blocks else 0
            inside = False
        elif not line.strip(" \t"):
            inside = False
        else:
            if not inside:
                blocks.append(Block(document if marks_documents else len(blocks), [], begins.get(number, number)))
            blocks[-1].rows.append(Row(number, _split(line, separator)))
            inside = True
    return blocks
