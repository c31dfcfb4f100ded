"""Readers of corpus files, one per format; to add a format, write its reader and add it to `READERS`.

A reader yields the position of each document in the file (":12" for line or row 12, "" for the whole file), and its
text, "" for null.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.corpus.file_kind import CONLLU_COLUMNS, is_word_numbering, strip_conllu_extras
from domainbert.corpus.files import MAX_DOCUMENT_BYTES, is_compressed, open_bytes, read_lines, too_long, unreadable
from domainbert.corpus.rows import csv_rows, json_rows

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

    from domainbert.corpus.config import Source

Texts = Iterator[tuple[str, str]]  # (position, text)
Reader = Callable[[Path, "Source"], Texts]

_MAX_PROBLEMS = 20  # invalid lines in an error message
_PARQUET_ROWS = 128  # of a batch


def read_text(path: Path, source: Source) -> Texts:
    """Read plain text; `source.documents` is the unit of a document: a file, the text between blank lines, or a line.

    Blank lines are skipped, except inside a file that is one document. Raise `DomainbertError` if a document is too
    long.
    """
    if source.documents == "line":  # `read_lines` checks the length
        yield from ((f":{number}", line) for number, line in read_lines(path) if line.strip())
        return
    lines: list[str] = []
    start = size = 0
    for number, line in read_lines(path):
        if source.documents == "blank_line" and not line.strip():
            if lines:
                yield f":{start}", "\n".join(lines)
            lines, size = [], 0
            continue
        start = start if lines else number
        lines.append(line)
        size += len(line.encode()) + 1
        if size > MAX_DOCUMENT_BYTES:
            raise too_long(f"{path}:{start}", "document", " (documents: blank_line or line makes them shorter)")
    if lines or source.documents == "file":
        position = f":{start}" if source.documents == "blank_line" else ""
        yield position, "\n".join(lines)


def read_jsonl(path: Path, source: Source) -> Texts:
    """Read JSON Lines with the text under `text_key`; skip blank lines, and read null as an empty text. Raise
    `DomainbertError` with the first 20 invalid lines."""
    problems = Problems(str(path), limit=_MAX_PROBLEMS)
    key = source.text_key
    # for translations, the file is read again with the translation key as the text key
    setting = "translation_key" if key == source.translation_key else "text_key"
    for number, row in json_rows(path, read_lines(path), problems):
        text = row.get(key)
        if key not in row:
            found = f"no key {key!r} (keys found: {format_names(row)})"
            problems.add(found, file=path, line=number, hint=f"set {setting} to the key of the text in every row")
        elif text is not None and not isinstance(text, str):
            problems.add(
                f"the value of {key!r} is of type {type(text).__name__}", file=path, line=number, expected="a string"
            )
        elif not problems.messages:  # after a problem, the rest is read only to find more problems
            yield f":{number}", text or ""
    problems.raise_if_any()


def read_conll(path: Path, source: Source) -> Texts:
    """Read CoNLL: each sentence is a document, its words (first column; in CoNLL-U the forms) joined by spaces.

    Labels are ignored: this is for pretraining on the text of a task (TAPT), and `finetune` validates labels.
    """
    sentence: list[tuple[int, str]] = []
    for number, line in chain(read_lines(path), [(0, "")]):  # a blank line ends the last sentence
        if line.strip() and _columns(line)[0] != "-DOCSTART-":
            sentence.append((number, line))
        elif sentence:
            start = sentence[0][0]
            rows = [(number, _columns(line)) for number, line in strip_conllu_extras(_without_comments(sentence))]
            yield f":{start}", " ".join(_words(path, rows))
            sentence = []


def _without_comments(sentence: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the lines from the first word on: comments begin with # and have other columns than all words. If the
    words differ in their columns, too, return all lines."""
    shapes = [(len(_columns(line)), "\t" in line) for _, line in sentence]
    is_comment = [
        line.startswith("#") and shape != shapes[-1] for (_, line), shape in zip(sentence, shapes, strict=True)
    ]
    first_word = is_comment.index(False)
    return sentence[first_word:] if len(set(shapes[first_word:])) == 1 else sentence


def _columns(line: str) -> list[str]:
    return [column.strip() for column in line.strip(" ").split("\t" if "\t" in line else " ")]


def _words(path: Path, rows: Sequence[tuple[int, list[str]]]) -> list[str]:
    """Return the words of a sentence from its (line, columns): the first column, in CoNLL-U (ten columns, the first
    numbers the words) the second."""
    words = [columns[0] for _, columns in rows]
    if is_word_numbering(words):
        if all(len(columns) == CONLLU_COLUMNS for _, columns in rows):
            words = [columns[1] for _, columns in rows]
        elif len(words) > 1:
            expected = f"a column of words, or the {CONLLU_COLUMNS} columns of CoNLL-U"
            raise DomainbertError("column 0 holds word numbers", file=path, line=rows[0][0], expected=expected)
    for (number, _), word in zip(rows, words, strict=True):
        if not word:
            raise DomainbertError("the column of words is empty", file=path, line=number, expected="a word")
    return words


def read_csv(path: Path, source: Source) -> Texts:
    """Read CSV with commas and a header; quoted fields may contain line breaks. Raise `DomainbertError` if there is no
    column `text_key`, or if rows are invalid (the first 20)."""
    problems = Problems(str(path), limit=_MAX_PROBLEMS)
    rows = csv_rows(path, read_lines(path), ",", problems)
    _, header = next(rows, (1, []))
    problems.raise_if_any()
    column = _column_index(path, header, source.text_key)
    for line, columns in rows:
        if not problems.messages:  # after a problem, the rest is read only to find more problems
            yield f":{line}", columns[column]
    problems.raise_if_any()


def read_parquet(path: Path, source: Source) -> Texts:
    """Read Parquet, a few rows at a time; null is an empty text.

    Raises:
        DomainbertError: not a Parquet file, no column `text_key`, the column is not text, a value is not UTF-8 or is
            longer than `MAX_DOCUMENT_BYTES`, a checksum is wrong, or rows are missing.
    """
    import pyarrow

    row = 0
    try:
        with _open_parquet(path) as file:
            _column_index(path, file.schema_arrow.names, source.text_key)  # raises if it is missing
            for batch in file.iter_batches(_PARQUET_ROWS, columns=[source.text_key]):
                for text in _strings(batch.column(0), path, source.text_key):
                    row += 1
                    if text is not None and len(text.encode()) > MAX_DOCUMENT_BYTES:
                        raise too_long(f"{path}, row {row}", "document")
                    yield f":{row}", text or ""
            if row != (expected := file.metadata.num_rows):
                raise DomainbertError(file=path, found=f"{row:,} rows", expected=f"{expected:,} as in its footer")
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error, f" after row {row}" if row else "") from error


@contextmanager
def _open_parquet(path: Path) -> Iterator[ParquetFile]:
    # a compressed file is unpacked to a temporary file, because Parquet needs to seek
    from pyarrow.parquet import ParquetFile

    with ExitStack() as stack:
        seekable: Path | IO[bytes] = path
        if is_compressed(path):
            seekable = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stack.enter_context(open_bytes(path)), seekable, 1024**2)
        # a buffer without prefetching; otherwise a whole row group, of any size, is in memory
        yield stack.enter_context(
            ParquetFile(seekable, buffer_size=1024**2, pre_buffer=False, page_checksum_verification=True)
        )


def _strings(column: Any, path: Path, name: str) -> list[str | None]:
    import pyarrow.types as types

    dtype = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not (types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype)):
        raise DomainbertError(f"the column {name!r} is of type {column.type}", file=path, expected="strings")
    return column.to_pylist()


def _column_index(path: Path, header: list[str], name: str) -> int:
    if name not in header:
        found = f"no column {name!r} (columns found: {format_names(header)})"
        raise DomainbertError(found, file=path, hint="set text_key (or translation_key) to the column with the text")
    if header.count(name) > 1:
        raise DomainbertError(file=path, found=f"{header.count(name)} columns named {name!r}", expected="a single one")
    return header.index(name)


READERS: dict[str, Reader] = {  # by suffix; a further suffix .gz or .zst is decompressed for all readers
    ".txt": read_text,
    ".jsonl": read_jsonl,
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".conll": read_conll,
}
