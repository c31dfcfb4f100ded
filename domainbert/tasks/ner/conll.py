"""The strict reader of CoNLL files: one word a line with its columns, blank lines between sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from domainbert.base.errors import DomainbertError, Problems
from domainbert.corpus.columns import Table, read_table
from domainbert.tasks.labelled import Labelled, Unit, in_words, label_counts, label_set
from domainbert.tasks.ner.config import SchemeChoice
from domainbert.tasks.ner.tags import (
    Scheme,
    Span,
    detect_scheme,
    find_violations,
    spans_from_tags,
    split_tag,
    to_iob2,
)

_LISTED_REPAIRS = 3
_ENTITY = re.compile("[BIESLU]-.")


@dataclass(frozen=True)
class Sentence:
    """Words with one IOB2 tag each."""

    words: list[str]
    tags: list[str]
    line: int
    """The line of the file where the sentence begins, from 1."""
    document: int
    """Number of the document that holds the sentence, from 0; each sentence its own where the file marks none."""

    @property
    def spans(self) -> list[Span]:
        """The entities: `(start, end, type)` in words, `end` exclusive."""
        return spans_from_tags(self.tags)

    @property
    def content(self) -> list[str]:
        """The words."""
        return self.words

    @property
    def labels(self) -> list[str]:
        """The types of the entities."""
        return [kind for _, _, kind in self.spans]


@dataclass(frozen=True)
class NerFile(Labelled[Sentence]):
    """Contents of a tagged file, and how it was read."""

    scheme: Scheme
    """The scheme of the file; the tags of the sentences are IOB2 whatever it is."""
    layout: str
    """Kind of file, and how the columns were found, in words."""
    marks: list[int]
    """The lines that say where documents begin; empty if none does."""
    repairs: list[str] = field(default_factory=list)
    """One line for each tag that was rewritten because its scheme forbids it."""
    left_out: dict[str, int] = field(default_factory=dict)
    """What the file holds beside these entities, in the plural, and how much of it."""
    export: str = ""
    """The format of an annotation tool whose texts are no lines; empty where they are."""

    @property
    def sentences(self) -> Sequence[Sentence]:
        """The items."""
        return self.items

    @property
    def unit(self) -> str:
        """The name of what the bootstrap draws."""
        return "documents" if self.marks else "sentences"

    def units(self) -> list[Unit]:
        """The documents; one begins where it is marked. `DomainbertError` if they are no lines of the file."""
        if self.export:
            raise DomainbertError(f"{self.path}: {self.export} is not divided into folds; expected CoNLL or JSONL")
        units: list[Unit] = []
        for _, group in groupby(self.items, key=lambda one: one.document):
            document = list(group)
            begin = max((mark for mark in self.marks if mark < document[0].line), default=document[0].line)
            first = min(self.marks, default=begin)
            units.append(Unit(begin if units else min(first, begin), frozenset(label_set(document))))
        return units

    @property
    def num_documents(self) -> int:
        """Documents, marked or not."""
        return len({sentence.document for sentence in self.items})

    @property
    def num_words(self) -> int:
        """Words of all sentences."""
        return sum(len(sentence.words) for sentence in self.items)

    @property
    def num_spans(self) -> int:
        """Entities of all sentences."""
        return sum(len(sentence.spans) for sentence in self.items)

    def describe(self) -> str:
        """A line with sizes, layout, scheme, entities of each type, repairs."""
        types = label_counts(self.items)
        grouped = f" in {self.num_documents:,} documents" if self.marks else ""
        lines = [
            f"{self.path}: {len(self.items):,} sentences{grouped}, {self.num_words:,} words; {self.layout}; "
            f"scheme {self.scheme}; {sum(types.values()):,} entities{f' ({in_words(types)})' if types else ''}"
        ]
        if self.repairs:
            lines.append(f"  {len(self.repairs):,} tags repaired:")
            lines += [f"    {repair}" for repair in self.repairs[:_LISTED_REPAIRS]]
            hidden = len(self.repairs) - _LISTED_REPAIRS
            lines += [f"    ... and {hidden:,} more"] if hidden > 0 else []
        if self.left_out:
            lines.append(
                f"  left out: {', '.join(f'{count:,} {what}' for what, count in sorted(self.left_out.items()))}"
            )
        return "\n".join(lines)


class TaggedRows(NamedTuple):
    """One sentence as it stands in the file, its tags still of any scheme; `lines` are those of its words."""

    words: list[str]
    tags: list[str]
    lines: list[int]
    line: int
    document: int


def read_conll(
    path: Path,
    token_column: int | str = 0,
    tag_column: int | str = -1,
    scheme: SchemeChoice = "auto",
    repair: bool = False,
) -> NerFile:
    """Read a CoNLL file; its tags come back as IOB2.

    Columns are separated by tabs or by spaces, whichever most lines use; nothing else separates (a no-break space or a
    control character is part of its word). One or more blank lines end a sentence; `-DOCSTART-` begins a document.
    For the arguments see `NerFormat`; `repair` is by the reading of conlleval.

    Raises:
        DomainbertError: the file cannot be read; a line has another number of columns than the first; an unknown tag; a
            tag that the scheme forbids while `repair` is off; an entity at `-DOCSTART-`; a line break of Unicode
            outside of a word; no sentence at all.
    """
    table = read_table(path, with_header=isinstance(token_column, str) or isinstance(tag_column, str))
    token, tag = table.column_index(token_column), table.column_index(tag_column)
    if token == tag:
        raise DomainbertError(f"{path}: column {token} would hold both words and tags; expected two columns")
    table.check_breaks(token)
    _check_marks(table, tag)
    sentences = [
        TaggedRows(
            [row.columns[token] for row in block.rows],
            [row.columns[tag] for row in block.rows],
            [row.line for row in block.rows],
            block.rows[0].line,
            block.document,
        )
        for block in table.blocks
    ]
    layout = (
        f"CoNLL, {table.width} columns separated by {table.separator}, words in column {token}, tags in column {tag}"
    )
    return tagged_file(path, "conll", sentences, scheme, repair, layout, [mark.line for mark in table.marks])


def _check_marks(table: Table, tag: int) -> None:
    """The `-DOCSTART-` lines are no words, so an entity there would be lost."""
    problems = Problems(str(table.path))
    for mark in table.marks:
        if len(mark.columns) == table.width and _ENTITY.match(mark.columns[tag]):
            problems.add(f"{table.path}:{mark.line}: -DOCSTART- has the tag {mark.columns[tag][:40]!r}; expected O")
    problems.raise_if_any()


def tagged_file(
    path: Path,
    kind: Literal["conll", "jsonl"],
    rows: Sequence[TaggedRows],
    scheme: SchemeChoice,
    repair: bool,
    layout: str,
    marks: Sequence[int] = (),
) -> NerFile:
    """Check the tags of `rows` against the scheme, convert them to IOB2, and collect what was repaired."""
    if not rows:
        raise DomainbertError(f"{path}: no sentences; expected words with tags")
    _check_tags(path, rows)
    try:
        found: Scheme = detect_scheme(row.tags for row in rows) if scheme == "auto" else scheme
    except DomainbertError as error:
        raise DomainbertError(f"{path}:{_line_of_rarer_scheme(rows)}: {error}") from error
    problems, repairs, sentences = Problems(str(path)), [], []
    for row in rows:
        meant = to_iob2(row.tags)
        sentences.append(Sentence(row.words, meant, row.line, row.document))
        for violation in find_violations(row.tags, found):
            where, tag = f"{path}:{row.lines[violation.index]}: {violation.reason}", meant[violation.index]
            if repair:
                repairs.append(f"{where}; read as {tag}")
            else:
                problems.add(f"{where}; expected {tag} in IOB2 (`repair: true` reads it so)")
    problems.raise_if_any()
    return NerFile(path, sentences, kind, found, layout, list(marks), repairs)


def _line_of_rarer_scheme(rows: Sequence[TaggedRows]) -> int:
    """First line of the rarer tags where BIOES and BILOU are mixed."""
    placed = [place for row in rows for place in zip(row.tags, row.lines, strict=True)]
    return min(([line for tag, line in placed if tag[0] in prefixes] for prefixes in ("ES", "LU")), key=len)[0]


def _check_tags(path: Path, rows: Sequence[TaggedRows]) -> None:
    problems = Problems(str(path))
    for row in rows:
        for tag, line in zip(row.tags, row.lines, strict=True):
            try:
                split_tag(tag)
            except DomainbertError as error:
                problems.add(f"{path}:{line}: {error}")
    problems.raise_if_any()
