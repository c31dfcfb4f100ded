"""Sentences with one tag per word, of any meaning, and their reader from JSONL with two lists."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.corpus.file_kind import KIND_NAMES
from domainbert.corpus.rows import OpenFile, Row
from domainbert.labelled.conll import Mark, TaggedRows, TaggedTable
from domainbert.labelled.formats import LabelNames, TaggedColumns
from domainbert.labelled.items import PlainItem, SentenceFile, Unit, label_set
from domainbert.labelled.label_names import label_names, refuse_other_names
from domainbert.labelled.row_values import is_whole_number, parse_rows, problem_with_strings, raise_problems, shown
from domainbert.labelled.rows import without_rejected

_TAG_KEYS = ("tags", "ner_tags")
_LINE_OF_MARK = attrgetter("line")
_NOT_IN_COLUMN = re.compile(r"[\t\n\r\0]|^\ufeff|^ *-DOCSTART-( |$)")  # words that `read_columns` cannot read back


@dataclass(frozen=True)
class TaggedSentence:
    """Words with one tag each."""

    words: list[str]
    tags: list[str]
    line: int
    """First line of the sentence in the file, from 1."""
    document: int
    """Index of the document, from 0; each sentence is a document if the file marks none."""
    text: str | None = None
    """Text that was split into the words; None if the file has words."""
    file: Path | None = None
    """File of the sentence if the set is a folder, as for brat; None otherwise."""

    @property
    def content(self) -> list[str]:
        """See `Item.content`."""
        return self.words

    @property
    def labels(self) -> list[str]:
        """See `Item.labels`."""
        return self.tags


AnySentence = TypeVar("AnySentence", bound=TaggedSentence)


@dataclass(frozen=True)
class TaggedFile(SentenceFile[AnySentence]):
    """Sentences of a tagged file, and how the file was read."""

    layout: str
    """Description of the file format and the columns."""
    marks: Sequence[Mark]
    """Lines that mark the beginning of a document."""

    @property
    @override
    def marks_documents(self) -> bool:
        return bool(self.marks)

    def units(self) -> list[Unit]:
        """Return the documents, each beginning at its mark."""
        units: list[Unit] = []
        for _, group in groupby(self.items, key=lambda item: item.document):
            document = list(group)
            begin = document[0].line
            if num_marks := bisect(self.marks, begin, key=_LINE_OF_MARK):  # marks before the document
                # the first unit begins at the first mark: documents without words may precede it
                begin = self.marks[num_marks - 1 if units else 0].line
            units.append(Unit(begin, frozenset(label_set(document))))
        return units

    @override
    def plain_item(self, item: AnySentence) -> PlainItem:
        index_of_mark = bisect(self.marks, item.line, key=_LINE_OF_MARK) - 1  # of the last mark before the sentence
        name = self._document_names.get(index_of_mark, "")
        text = " ".join(item.words)
        document = item.document if self.marks else None  # without marks, sentences are not parts of documents
        return PlainItem((text,), tuple(item.labels), tuple(item.tags), document=document, document_name=name)

    @cached_property
    def _document_names(self) -> dict[int, str]:
        names = [mark.name for mark in self.marks]
        distinct = len(set(names)) == len(names) and all(names)
        return dict(enumerate(names)) if distinct else {}

    @property
    def fits_columns(self) -> bool:
        """Whether `read_columns` reads the same words from the output of `write`: JSONL may have empty sentences, or
        words with a tab or a line break."""
        return all(item.words and not any(map(_NOT_IN_COLUMN.search, item.words)) for item in self.items)

    def write(self, path: Path, predicted: Sequence[Sequence[str]]) -> None:
        """Write the columns that conlleval reads: word, gold tag, predicted tag; and document marks if any."""
        document = -1
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for sentence, tags in zip(self.items, predicted, strict=True):
                if self.marks and sentence.document != document:
                    document = sentence.document
                    stream.write("-DOCSTART-\tO\tO\n\n")
                for row in zip(sentence.words, sentence.tags, tags, strict=True):
                    stream.write("\t".join(row) + "\n")
                stream.write("\n")


def sentence_rows(file: OpenFile, problems: Problems, left_out: Counter[str]) -> list[tuple[int, Row]]:
    """Return the `(line, row)` pairs of JSONL, or of rows in memory, at least one; for `left_out` see
    `without_rejected`."""
    rows = list(without_rejected(file.rows(problems), left_out))
    if not rows:
        problems.raise_if_any()
        raise DomainbertError("no sentences", file=file.source, expected="words with tags")
    return rows


def word_and_tag_keys(where: str, first_row: Row, format: TaggedColumns) -> tuple[str, str]:
    """Return the keys of words and tags in JSONL as set in the format; otherwise "tokens", and the first row's key."""
    word_key = format.token_column if isinstance(format.token_column, str) else "tokens"
    if isinstance(format.tag_column, str):
        return word_key, format.tag_column
    tag_keys = [key for key in _TAG_KEYS if key in first_row]
    if len(tag_keys) > 1:
        raise DomainbertError(
            f"tags under {format_names(tag_keys)}", where=where, expected="format.tag_column to name one"
        )
    return word_key, tag_keys[0] if tag_keys else _TAG_KEYS[0]


def read_lists(
    file: OpenFile, rows: Sequence[tuple[int, Row]], problems: Problems, keys: tuple[str, str], format: LabelNames
) -> TaggedTable:
    """Return the sentences in rows of JSONL, at least one; each sentence is a document.

    A row is `{"tokens": ["A", ...], "tags": ["O", ...]}`, with these or other `keys` of words and tags; tags may be
    numbers, which index the names in `label_names`.
    """
    line, first_row = rows[0]
    names = label_names(format, first_row, f"{file.source}:{line}")

    words_key, tags_key = keys

    def parse(row: Row, line: int) -> TaggedRows:
        refuse_other_names(row, first_row)
        tags: Any = row.get(tags_key)
        are_numbers = isinstance(tags, list) and any(map(is_whole_number, tags))
        problem = _problem_with_indices(tags, tags_key, names) if are_numbers else problem_with_strings(row, tags_key)
        raise_problems(problem_with_strings(row, words_key), problem)
        words = row[words_key]
        if len(words) != len(tags):
            found = f"{words_key!r} has length {len(words)}, but {tags_key!r} has length {len(tags)}"
            raise DomainbertError(found, expected="one tag for each word")
        if are_numbers:
            tags = [(names or ())[index] for index in tags]
        return TaggedRows(words, tags, [line] * len(words), line, document=next(documents))

    documents = count()
    sentences = parse_rows(rows, problems, parse)
    problems.raise_if_any()
    layout = f"{KIND_NAMES[file.kind]}, words in {words_key!r}, tags in {tags_key!r}"
    return TaggedTable(sentences, [], file.kind, layout)


def _problem_with_indices(tags: Sequence[Any], key: str, names: Sequence[str] | None) -> DomainbertError | None:
    if names is None:
        first = next(filter(is_whole_number, tags))
        expected = "strings, or format.label_names with their names"
        return DomainbertError(f"{key!r} contains the number {first}", expected=expected)
    for tag in tags:
        if not is_whole_number(tag) or not 0 <= tag < len(names):
            expected = f"indices of label_names, from 0 to {len(names) - 1}"
            return DomainbertError(f"{key!r} contains {shown(tag)}", expected=expected)
    return None
