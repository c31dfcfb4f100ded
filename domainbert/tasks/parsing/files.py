"""The strict reader of treebanks in CoNLL-U and CoNLL-X, which have the same ten columns where it matters. Free of
torch."""

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
from domainbert.corpus.files import read_lines
from domainbert.corpus.rows import Rows
from domainbert.labelled.items import SentenceFile, Unit, in_words, label_counts, label_set
from domainbert.labelled.label_names import is_visible
from domainbert.labelled.plain_items import PlainItem
from domainbert.tasks.parsing.config import Parsing, ParsingFormat
from domainbert.tasks.parsing.trees import find_cycle, roots

Line = tuple[int, str]
Row = tuple[int, list[str]]  # the number of a line, and its columns

COLUMNS = 10
ID, FORM, TAG, HEAD, LABEL, DEPS = 0, 1, 3, 6, 7, 8
"""Places of the columns; the tag is UPOS in CoNLL-U, CPOSTAG in CoNLL-X."""

PUNCTUATION_TAGS = frozenset(["`", "``", "''", ":", ",", ".", "PU", "PUNCT", "SYM"])
"""The tags of words that AllenNLP, and so SciBERT, leaves out of its scores; its versions differ in the first two."""

_UNKNOWN = "_"
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
_ASIDE = {"multiword tokens": re.compile(r"\d+-\d+\t"), "empty nodes": re.compile(r"\d+\.\d+\t")}
_MOST_DIGITS = 9  # of a head; Python refuses to read thousands


@dataclass(frozen=True)
class Sentence:
    """Words, and for each of them its head (the number of a word from 1, or 0 for the root), the arc's label, a tag."""

    words: list[str]
    heads: list[int]
    labels: list[str]
    tags: list[str]
    rows: list[str]
    """Its lines in the file, comments too: predictions are written into a copy of them."""
    line: int
    """The line of the file where it begins, from 1."""
    document: int
    """Number of the document that holds the sentence, from 0; each sentence its own where the file marks none."""

    @property
    def content(self) -> list[str]:
        """The words."""
        return self.words

    @property
    def arcs(self) -> list[tuple[int, str]]:
        """Head and label of each word."""
        return list(zip(self.heads, self.labels, strict=True))

    @property
    def punctuation(self) -> list[bool]:
        """Whether each word is punctuation: by its tag; by its characters, as in CoNLL-X, where it has none."""
        return [
            all(unicodedata.category(one)[0] == "P" for one in word) if tag == _UNKNOWN else tag in PUNCTUATION_TAGS
            for word, tag in zip(self.words, self.tags, strict=True)
        ]


@dataclass(frozen=True)
class Treebank(SentenceFile[Sentence]):
    """Contents of a treebank."""

    marked: bool
    """Whether comments (`# newdoc`) say where documents begin."""

    @property
    @override
    def marks_documents(self) -> bool:
        return self.marked

    @override
    def plain_item(self, item: Sentence) -> PlainItem:
        document = item.document if self.marked else None
        return replace(super().plain_item(item), target=tuple(item.arcs), document=document)

    def units(self) -> list[Unit]:
        """The documents; one begins with the comments of its first sentence."""
        grouped = (list(group) for _, group in groupby(self.items, key=lambda one: one.document))
        return [Unit(document[0].line, frozenset(label_set(document))) for document in grouped]

    @property
    def summary(self) -> str:
        """A line with sizes, what was left out, and the labels."""
        labels, rows = label_counts(self.items), [row for sentence in self.items for row in sentence.rows]
        counts = {what: sum(bool(kind.match(row)) for row in rows) for what, kind in _ASIDE.items()}
        aside = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return (
            f"{self.path}: {self.counted}"
            f"{f', and {aside}, which are dropped' if aside else ''}; {FileKind(self.kind, COLUMNS)}; "
            f"{len(labels)} labels ({in_words(labels)})"
        )


def read(config: Parsing, path: Path | Rows) -> Treebank:
    """See `TaskConfig.read`."""
    if isinstance(path, Rows):
        raise DomainbertError(f"{path}: rows of a data set; expected a treebank in CoNLL-U or CoNLL-X")
    return read_treebank(path, config.format)


def read_treebank(path: Path, format: ParsingFormat | None = None) -> Treebank:
    """Read a treebank: blank lines between sentences, comments in lines that begin with `#`.

    Multiword tokens (`3-4`), whose parts are the words, and empty nodes (`3.1`) are left out.

    Raises:
        DomainbertError: the file cannot be read; a line has other than ten columns, a number out of order, no form, no
            label or a head that is none of the words; a sentence is no tree with one root; no sentence at all.
    """
    check_regular(path)
    format, problems = format or ParsingFormat(), Problems(str(path))
    blocks = list(_blocks(path))
    begun = list(accumulate(int(any(_NEW_DOCUMENT.match(text) for _, text in block)) for block in blocks))
    marked = any(begun)
    sentences: list[Sentence] = []
    for number, block in enumerate(blocks):
        words = [(line, text.split("\t")) for line, text in block if is_word(text)]
        found = list(_problems(words)) or list(_problems_of_tree(words))
        for line, problem in found:
            problems.add(f"{path}:{line}: {problem}")
        if words and not found:
            sentences.append(_sentence(block, words, format, begun[number] if marked else number))
    problems.raise_if_any()
    if not sentences:
        raise DomainbertError(f"{path}: no sentences; expected words with heads, in CoNLL-U or CoNLL-X")
    return Treebank(path, sentences, "conll", marked)


def is_word(row: str) -> bool:
    """Whether a line of a sentence is a word: no comment, multiword token or empty node."""
    return not row.startswith("#") and not any(kind.match(row) for kind in _ASIDE.values())


def _blocks(path: Path) -> Iterator[list[Line]]:
    """The numbered lines between blank ones."""
    for filled, lines in groupby(read_lines(path), key=lambda one: bool(one[1].strip())):
        if filled:
            yield list(lines)


def _sentence(block: Sequence[Line], words: Sequence[Row], format: ParsingFormat, document: int) -> Sentence:
    columns = [columns for _, columns in words]
    return Sentence(
        [row[FORM] for row in columns],
        [int(row[HEAD]) for row in columns],
        [format.read_label(row[LABEL]) for row in columns],
        [row[TAG] for row in columns],
        [text for _, text in block],
        block[0][0],
        document,
    )


def _problems(words: Sequence[Row]) -> Iterator[tuple[int, str]]:
    """Problems of single words: the line, and the sentence for it."""
    for number, (line, columns) in enumerate(words, 1):
        if len(columns) != COLUMNS:
            found = f"{len(columns)} column{'' if len(columns) == 1 else 's'} separated by tabs"
            yield line, f"{found}; expected the {COLUMNS} of CoNLL-U or CoNLL-X"
            continue
        form, head, label = columns[FORM], columns[HEAD], columns[LABEL]
        if columns[ID] != str(number):
            yield line, f"word {columns[ID]!r}; expected {number}, for words are numbered from 1 in each sentence"
        elif not form.strip():
            yield line, "no form in column 2; expected a word"
        elif not (head.isascii() and head.isdecimal() and len(head) <= _MOST_DIGITS and int(head) <= len(words)):
            yield line, f"head {head!r}; expected a number from 0, the root, to {len(words)}, the last word"
        elif label == _UNKNOWN or not is_visible(label):
            yield line, f"label {label!r}; expected visible characters, without white space around them"


def _problems_of_tree(words: Sequence[Row]) -> Iterator[tuple[int, str]]:
    """Reasons why the heads of a sentence make no tree: the line, and the sentence for it."""
    heads = [int(columns[HEAD]) for _, columns in words]
    found = roots(heads)
    if heads and not found:
        yield words[0][0], "no word has head 0; expected one, the root of the sentence"
    elif len(found) > 1:
        what = f"word {found[1]} has head 0, as word {found[0]} (line {words[found[0] - 1][0]}) has"
        yield words[found[1] - 1][0], f"{what}; expected one root: attach one to the other, or split the sentence"
    elif cycle := find_cycle(heads):
        path = " -> ".join(map(str, [*cycle, cycle[0]]))
        yield (
            words[cycle[0] - 1][0],
            f"a cycle of heads, {path}; expected a tree, in which every word leads to the root",
        )
