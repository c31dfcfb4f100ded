"""Strict reader of treebanks in CoNLL-U and CoNLL-X, which have the same relevant columns. Free of torch."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path

from typing_extensions import override

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import check_regular
from domainbert.corpus.file_kind import FileKind
from domainbert.corpus.files import Line, read_lines
from domainbert.corpus.rows import Rows
from domainbert.labelled.conll import split_blocks
from domainbert.labelled.items import PlainItem, SentenceFile, Unit, describe_labels, label_set
from domainbert.labelled.row_values import is_visible
from domainbert.tasks.parsing.config import Parsing, ParsingFormat
from domainbert.tasks.parsing.trees import find_cycle, roots

Row = tuple[int, list[str]]  # line number and columns

COLUMNS = 10
ID, FORM, TAG, HEAD, LABEL, DEPS = 0, 1, 3, 6, 7, 8
"""Indices of the columns; TAG is UPOS in CoNLL-U, CPOSTAG in CoNLL-X, DEPS has the enhanced dependencies."""

PUNCTUATION_TAGS = frozenset(["`", "``", "''", ":", ",", ".", "PU", "PUNCT", "SYM"])
"""Tags that AllenNLP, and therefore SciBERT, excludes from scores; its versions differ in the first two."""

_UNDEFINED = "_"  # an empty field
_BLANK = re.compile(r"\s*\Z")
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
_SKIPPED = {"multiword tokens": re.compile(r"\d+-\d+\t"), "empty nodes": re.compile(r"\d+\.\d+\t")}
_MAX_DIGITS = 9  # of a head; int() rejects thousands of digits


@dataclass(frozen=True)
class Sentence:
    """Words with their heads (word numbers from 1, or 0 for the root), arc labels and tags."""

    words: list[str]
    heads: list[int]
    labels: list[str]
    tags: list[str]
    rows: list[str]
    """Lines of the file, with comments; the writer inserts predictions into a copy."""
    line: int
    """First line in the file, from 1."""
    document: int
    """Index of the document, from 0; without document marks, each sentence is a document."""

    @property
    def content(self) -> list[str]:
        """Return the words."""
        return self.words

    @property
    def arcs(self) -> list[tuple[int, str]]:
        """Return (head, label) of each word."""
        return list(zip(self.heads, self.labels, strict=True))

    @property
    def punctuation(self) -> list[bool]:
        """Return for each word whether it is punctuation."""
        return [_is_punctuation(word, tag) for word, tag in zip(self.words, self.tags, strict=True)]


@dataclass(frozen=True)
class Treebank(SentenceFile[Sentence]):
    """The sentences of a treebank, with their dependency trees."""

    has_document_comments: bool
    """Whether comments (`# newdoc`) mark the documents."""

    @property
    @override
    def marks_documents(self) -> bool:
        return self.has_document_comments

    @override
    def plain_item(self, item: Sentence) -> PlainItem:
        document = item.document if self.has_document_comments else None
        return replace(super().plain_item(item), target=tuple(item.arcs), document=document)

    def units(self) -> list[Unit]:
        """Return one unit per document, at the first line of its first sentence."""
        grouped = (list(group) for _, group in groupby(self.items, key=lambda sentence: sentence.document))
        return [Unit(document[0].line, frozenset(label_set(document))) for document in grouped]

    @property
    def summary(self) -> str:
        """Return a line with sizes, skipped rows, and labels."""
        rows = [row for sentence in self.items for row in sentence.rows]
        counts = {name: sum(bool(pattern.match(row)) for row in rows) for name, pattern in _SKIPPED.items()}
        skipped = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        dropped = f", and {skipped}, which are dropped" if skipped else ""
        layout, labels = FileKind(self.kind, COLUMNS), describe_labels(self.items, "labels")
        return f"{self.path}: {self.size_summary}{dropped}; {layout}; {labels}"


def read(config: Parsing, path: Path | Rows) -> Treebank:
    """Return the sentences of a treebank, for `TaskConfig.read`.

    Blank lines separate sentences, and lines that begin with `#` are comments.

    Multiword tokens (`3-4`), whose parts are words, and empty nodes (`3.1`) are skipped.

    Raises:
        DomainbertError: rows in memory; unreadable file; a line without ten columns, with a word number out of order,
            without form or label, or with an invalid head; a sentence that is not a tree with one root; no sentence.
    """
    if isinstance(path, Rows):
        raise DomainbertError(file=path, found="rows", expected="the path of a treebank in CoNLL-U or CoNLL-X")
    check_regular(path)
    problems = Problems(str(path))
    groups = split_blocks(path, read_lines(path), between=_BLANK)
    blocks = [list(lines) for is_sentence, lines in groups if is_sentence]
    begins_document = [any(_NEW_DOCUMENT.match(text) for _, text in block) for block in blocks]
    # the number of document marks up to each sentence, which is the index of its document if documents are marked
    documents = list(accumulate(map(int, begins_document)))
    marked = any(documents)
    sentences: list[Sentence] = []
    for index, block in enumerate(blocks):
        words = [(line, text.split("\t")) for line, text in block if is_word(text)]
        block_problems = list(_row_problems(words)) or list(_tree_problems(words))  # trees only of valid rows
        for line, problem, expected in block_problems:
            problems.add(problem, file=path, line=line, expected=expected)
        if words and not block_problems:
            sentences.append(_build_sentence(block, words, config.format, documents[index] if marked else index))
    problems.raise_if_any()
    if not sentences:
        raise DomainbertError("no sentences", file=path, expected="words with heads, in CoNLL-U or CoNLL-X")
    return Treebank(path, sentences, "conll", marked)


def _is_punctuation(word: str, tag: str) -> bool:
    if tag != _UNDEFINED:
        return tag in PUNCTUATION_TAGS
    return all(unicodedata.category(character)[0] == "P" for character in word)


def is_word(row: str) -> bool:
    """Whether a line of a sentence is a word, and not a comment, multiword token or empty node."""
    return not row.startswith("#") and not any(pattern.match(row) for pattern in _SKIPPED.values())


def _build_sentence(block: Sequence[Line], words: Sequence[Row], format: ParsingFormat, document: int) -> Sentence:
    columns_of_words = [columns for _, columns in words]
    first_line, _ = block[0]
    return Sentence(
        words=[columns[FORM] for columns in columns_of_words],
        heads=[int(columns[HEAD]) for columns in columns_of_words],
        labels=[format.read_label(columns[LABEL]) for columns in columns_of_words],
        tags=[columns[TAG] for columns in columns_of_words],
        rows=[text for _, text in block],
        line=first_line,
        document=document,
    )


def _row_problems(words: Sequence[Row]) -> Iterator[tuple[int, str, str]]:
    """Yield (line, problem, expected value) of each invalid word."""
    for number, (line, columns) in enumerate(words, 1):
        if len(columns) != COLUMNS:
            found = f"{len(columns)} column{'' if len(columns) == 1 else 's'} separated by tabs"
            yield line, found, f"the {COLUMNS} columns of CoNLL-U or CoNLL-X"
            continue
        form, head, label = columns[FORM], columns[HEAD], columns[LABEL]
        if columns[ID] != str(number):
            yield line, f"word number {columns[ID]!r}", f"{number}, as words are numbered from 1 in each sentence"
        elif not form.strip():
            yield line, "no form in column 2", "a word"
        elif not (head.isascii() and head.isdecimal() and len(head) <= _MAX_DIGITS and int(head) <= len(words)):
            yield line, f"head {head!r}", f"a number from 0, the root, to {len(words)}, the last word"
        elif label == _UNDEFINED or not is_visible(label):
            yield line, f"label {label!r}", "visible characters, without white space around them"


def _tree_problems(words: Sequence[Row]) -> Iterator[tuple[int, str, str]]:
    line_of = {number: line for number, (line, _) in enumerate(words, 1)}  # by number of the word
    heads = [int(columns[HEAD]) for _, columns in words]
    root_words = roots(heads)
    if heads and not root_words:
        yield line_of[1], "no word has head 0", "head 0 at one word, the root of the sentence"
    elif len(root_words) > 1:
        first, second = root_words[:2]
        found = f"word {second} has head 0, as word {first} (line {line_of[first]}) has"
        yield line_of[second], found, "one root: attach one to the other, or split the sentence"
    elif cycle := find_cycle(heads):
        path = " -> ".join(map(str, [*cycle, cycle[0]]))
        expected = "a tree: change the head of one of these words"
        yield line_of[cycle[0]], f"the heads form a cycle, {path}", expected
