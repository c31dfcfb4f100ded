"""Reads CoNLL files, one word per line in columns, with checks of the number of columns and of line breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mode
from typing import Literal

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.corpus.file_kind import CONLLU_COLUMNS, is_word_numbering, strip_conllu_extras
from domainbert.corpus.files import read_lines

Separator = Literal["tabs", "spaces"]
Line = tuple[int, str]
"""Line number, from 1, and the line."""
Columns = tuple[Separator, int, str]
"""Separator, number of columns, and the text of this number for messages, such as "4 as in line 1"."""

# characters that end a line for some programs, but not in a CoNLL file
_BREAK = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_LINE_ENDS = r"expected only \n or \r\n as line ends: remove it, or replace it by \n"
_NO_WORDS = "no words; expected one word per line, with its columns"
_MAX_LINES = 1_000_000  # of a sentence, which is held in memory
_DOCSTART = re.compile(r" *-DOCSTART-(?=[ \t]|$)")
_GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*")


@dataclass(frozen=True)
class Row:
    """The columns of one word, and its line in the file."""

    line: int
    columns: list[str]


@dataclass(frozen=True)
class Block:
    """The rows of one sentence, and its document number, from 0."""

    document: int
    rows: list[Row]
    line: int  # first line of the sentence, including the comments of a treebank


@dataclass(frozen=True)
class Table:
    """The words of a CoNLL file; each row has `width` non-empty columns."""

    path: Path
    separator: Separator
    width: int
    names: list[str] | None
    blocks: list[Block]
    marks: list[Row]  # the `-DOCSTART-` lines: outside blocks, with any number of columns
    left_out: int = 0  # skipped lines of a treebank: comments, multiword tokens, empty nodes

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
        if not -self.width <= column < self.width:
            raise DomainbertError(f"{self.path}: {option}: no column {column}; expected 0 to {self.width - 1}")
        return column % self.width

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


def read_table(path: Path, with_header: bool) -> Table:
    """Return the table of a CoNLL file, whose columns are separated by tabs or by spaces, whichever most lines use.

    Comments, multiword tokens and empty nodes of CoNLL-U are skipped. With `with_header` the first line names the
    columns.

    Raises:
        DomainbertError: the file cannot be read or has no words; a sentence has more than a million lines; a row has a
            different width, an empty column, a carriage return or a byte order mark.
    """
    all_lines = list(check_lengths(path, read_lines(path)))
    names = None
    if with_header and (header := next(filter(_is_row, all_lines), None)):
        _, header_text = header
        names = _column_names(header_text)
        all_lines.remove(header)
    lines, first_lines = _without_conllu_extras(all_lines)
    rows = list(filter(_is_row, lines))
    if not rows:
        raise DomainbertError(f"{path}: {_NO_WORDS}")
    separator, width, expected = _detect_columns(rows, names)
    marks = [(line_number, line) for line_number, line in lines if _DOCSTART.match(line)]
    _check_rows(path, rows, separator, width, expected)
    _check_marks(path, marks)
    mark_rows = [Row(line_number, _split(line, separator)) for line_number, line in marks]
    blocks = _split_sentences(lines, separator, bool(marks), first_lines)
    return Table(path, separator, width, names, blocks, mark_rows, left_out=len(all_lines) - len(lines))


def _is_row(line: Line) -> bool:
    """Whether a line is not empty and not -DOCSTART-."""
    return bool(line[1].strip(" \t")) and not _DOCSTART.match(line[1])


def check_lengths(path: Path, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines; raise `DomainbertError` in a sentence that is too long, without reading it to its end."""
    num_rows = 0
    for line in lines:
        num_rows = num_rows + 1 if _is_row(line) else 0
        if num_rows > _MAX_LINES:
            found = f"{path}:{line[0]}: the sentence has more than {_MAX_LINES:,} lines"
            raise DomainbertError(f"{found}; expected a blank line after each sentence")
        yield line


def _without_conllu_extras(lines: Sequence[Line]) -> tuple[list[Line], dict[int, int]]:
    """Return the lines without comments, multiword tokens and empty nodes of a treebank, and a mapping: from the number
    of a sentence's first remaining line to the number of its first line in the file."""
    remaining: list[Line] = []
    first_lines: dict[int, int] = {}
    for is_row, group in groupby(lines, key=_is_row):
        if not is_row:
            remaining += group
            continue
        sentence = list(group)
        words = strip_conllu_extras(sentence)  # never empty: a block of only comments is returned unchanged
        (first_word_line, _), (first_line, _) = words[0], sentence[0]
        first_lines[first_word_line] = first_line
        remaining += words
    return remaining, first_lines


def read_words(path: Path, token_column: int | str = 0, lines: Iterable[Line] | None = None) -> Iterator[list[str]]:
    """Yield a list of the words of each sentence of a CoNLL file, with or without tags, while reading it.

    The first sentence determines the separator and the number of columns.

    Args:
        path: the file.
        token_column: index of the word column, from 0 (negative from the end), or its name in the first line.
        lines: numbered lines of the file, if they have been read already.

    Raises:
        DomainbertError: as `read_table` and `Table.check_breaks`, for the first invalid sentence; the column holds the
            word numbers of CoNLL-U.
    """
    names: list[str] | None = None
    columns: Columns | None = None
    for is_row, group in groupby(check_lengths(path, read_lines(path) if lines is None else lines), key=_is_row):
        if not is_row:
            _check_marks(path, [(line_number, line) for line_number, line in group if _DOCSTART.match(line)])
            continue
        sentence = list(group)
        if isinstance(token_column, str) and names is None:
            _, header = sentence.pop(0)
            names = _column_names(header)
        if sentence:
            sentence = strip_conllu_extras(sentence)
            columns = columns or _detect_columns(sentence, names)
            yield _words_of_sentence(path, sentence, columns, names, token_column)
    if columns is None:
        raise DomainbertError(f"{path}: {_NO_WORDS}")


def _words_of_sentence(
    path: Path, sentence: Sequence[Line], columns: Columns, names: list[str] | None, token_column: int | str
) -> list[str]:
    """Return the words in the lines of one sentence; raise `DomainbertError` as `read_words`."""
    separator, width, expected = columns
    _check_rows(path, sentence, separator, width, expected)
    blocks = _split_sentences(sentence, separator, marks_documents=False, first_lines={})
    table = Table(path, separator, width, names, blocks, marks=[])
    column = table.column_index(token_column, "token_column")
    table.check_breaks(column)
    words = [row.columns[column] for row in table.blocks[0].rows]
    if width == CONLLU_COLUMNS and column == 0 and is_word_numbering(words):
        expected = "expected token_column: 1"
        raise DomainbertError(f"{path}:{sentence[0][0]}: column 0 holds word numbers, as in CoNLL-U; {expected}")
    return words


def _column_names(header: str) -> list[str]:
    """Return the names in a header line, which may begin with `# global.columns =`, as in CoNLL-U Plus."""
    return re.split(r"[ \t]+", _GLOBAL_COLUMNS.sub("", header).strip(" \t"))


def _detect_columns(rows: Sequence[Line], names: list[str] | None) -> Columns:
    """Return the separator of most rows, and the number of columns: of the header (`names`), or else of most rows."""
    with_tabs = sum("\t" in line for _, line in rows)
    separator: Separator = "tabs" if 2 * with_tabs > len(rows) else "spaces"
    if names:
        return separator, len(names), f"{len(names)} as in the header"
    widths = [len(_split(line, separator)) for _, line in rows]
    width = mode(widths)
    return separator, width, f"{width} as in line {rows[widths.index(width)][0]}"


def _split(line: str, separator: Separator) -> list[str]:
    """Return the columns of a line, split at U+0020 only or at tabs only: a no-break space or a control character
    belongs to its word."""
    return line.split("\t") if separator == "tabs" else re.split(" +", line.strip(" "))


def _check_rows(path: Path, rows: Sequence[Line], separator: Separator, width: int, expected: str) -> None:
    """Raise `DomainbertError` for rows without `width` non-empty columns, with a carriage return or a byte order mark.

    `expected` is the text of the width for messages, such as "4 as in line 1".
    """
    problems = Problems(str(path))
    for line_number, line in rows:
        columns = _split(line, separator)
        if "\r" in line:  # a file whose lines end in bare \r would be a single row
            problems.add(f"{path}:{line_number}: a carriage return inside the line; {_LINE_ENDS}")
        elif line.startswith("\ufeff"):
            problems.add(f"{path}:{line_number}: a byte order mark; expected it only at the beginning of the file")
        elif len(columns) != width:
            count = f"{len(columns)} column{'' if len(columns) == 1 else 's'} separated by {separator}"
            problems.add(f"{path}:{line_number}: {count}; expected {expected}")
        elif "" in columns:
            problems.add(f"{path}:{line_number}: column {columns.index('')} is empty; expected {width} filled columns")
        elif separator == "spaces" and "\t" in line:
            problems.add(f"{path}:{line_number}: a tab; expected spaces between columns, as in most lines")
    problems.raise_if_any()


def _check_marks(path: Path, marks: Sequence[Line]) -> None:
    """Raise `DomainbertError` if a -DOCSTART- line contains a Unicode line break."""
    problems = Problems(str(path))
    for line_number, line in marks:
        if match := _BREAK.search(line):  # words after it would be ignored with this line
            problems.add(f"{path}:{line_number}: U+{ord(match[0]):04X} after -DOCSTART-; {_LINE_ENDS}")
    problems.raise_if_any()


def _split_sentences(
    lines: Sequence[Line], separator: Separator, marks_documents: bool, first_lines: Mapping[int, int]
) -> list[Block]:
    """Return the sentences, split at blank lines and -DOCSTART-; without -DOCSTART- each sentence is a document.
    `first_lines` maps the number of a sentence's first row to the number of the comment before it, if there is one."""
    blocks: list[Block] = []
    document = 0
    inside = False  # of a sentence
    for line_number, line in lines:
        if _DOCSTART.match(line):
            # words before the first mark belong to document 0
            document = blocks[-1].document + 1 if blocks else 0
            inside = False
        elif not line.strip(" \t"):
            inside = False
        else:
            if not inside:
                first_line = first_lines.get(line_number, line_number)
                blocks.append(Block(document if marks_documents else len(blocks), [], first_line))
            blocks[-1].rows.append(Row(line_number, _split(line, separator)))
            inside = True
    return blocks
