"""Stream texts for prediction, in the order of the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from domainbert.base.errors import HALF_SURROGATE, UNICODE, DomainbertError, Problems
from domainbert.corpus.file_kind import FileKind, Kind, TextFormat
from domainbert.corpus.rows import Row, open_file
from domainbert.labelled.conll import read_words
from domainbert.labelled.contents import Content, text_of

_KINDS: tuple[Kind, ...] = ("lines", "jsonl", "conll", "csv", "tsv")

ContentOf = Callable[[dict[str, Any], str], Content]
"""Function of a row and the key of its text that returns the input of the model."""

Item = tuple[dict[str, Any], Content]
"""A row of the file and its input of the model."""


def read_texts(
    path: Path, format: TextFormat, text_key: str, token_column: int | str, content_of: ContentOf = text_of
) -> tuple[FileKind, Iterator[Item]]:
    """Return the kind of a file, and an iterator over its rows, each with the input of the model.

    A row is the object of JSONL or the row of a table with all its keys, or {`text_key`: text}. The input is
    `content_of(row, text_key)`, or the list of words of CoNLL. The file is opened once and read from beginning to end,
    so that it may be a stream.

    Raises:
        DomainbertError: the kind of the file is unknown, or the file cannot be read; from the iterator: a broken line.
    """
    file = open_file(path, format, _KINDS, "format", may_be_stream=True)
    kind = FileKind(file.kind, file.columns)
    if file.kind == "conll":
        words_of_sentences = read_words(path, file.lines, token_column)
        return kind, (({text_key: " ".join(words)}, words) for words in words_of_sentences)
    problems = Problems(str(path), limit=1)  # the limit raises it at once, as rows are predicted while reading
    if file.kind == "lines":
        rows: Iterator[tuple[int, Row]] = ((number, {text_key: text}) for number, text in file.lines)
    else:
        rows = file.rows(problems, (text_key,), hint=" (set text_key)")
    return kind, _row_items(path, rows, problems, text_key, content_of)


def iterate_chunks(items: Iterator[Item], max_items: int) -> Iterator[list[Item]]:
    """Yield lists of `max_items` items; the last list may be shorter."""
    while chunk := list(islice(items, max_items)):
        yield chunk


def iterate_available(items: Iterator[Item], max_items: int) -> Iterator[list[Item]]:
    """Yield lists of at most `max_items` items of a stream as they arrive, without waiting until a list is full.

    A thread reads at most `max_items` items ahead while the caller processes a list.
    """
    arrived: Queue[Item | BaseException | None] = Queue(max_items)  # None: the stream has ended

    def read() -> None:
        """Put the items into the queue, then None, or an error of the iterator."""
        try:
            for item in items:
                arrived.put(item)
            arrived.put(None)
        except BaseException as error:  # raised again in the caller's thread
            arrived.put(error)

    Thread(target=read, daemon=True).start()
    while True:
        entry = arrived.get()  # waits for an item
        chunk: list[Item] = []
        while isinstance(entry, tuple):  # an item
            chunk.append(entry)
            if len(chunk) == max_items or arrived.empty():
                break
            entry = arrived.get()
        if chunk:
            yield chunk
        if isinstance(entry, BaseException):
            raise entry
        if entry is None:
            return


def _row_items(
    path: Path, rows: Iterator[tuple[int, Row]], problems: Problems, text_key: str, content_of: ContentOf
) -> Iterator[Item]:
    for number, row in rows:
        try:
            content = content_of(row, text_key)
            # only tries it: predictions are written with all keys of the row
            json.dumps(row, ensure_ascii=False).encode()
        except DomainbertError as error:
            problems.add(error.within(file=path, line=number))
        except UnicodeEncodeError:
            problems.add(HALF_SURROGATE, file=path, line=number, expected=UNICODE)
        except RecursionError:
            problems.add("the object is nested too deeply", file=path, line=number, expected="fewer levels")
        else:
            yield row, content
