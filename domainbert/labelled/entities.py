"""Tagged sentences of a file as IOB2: the check of its tags against their scheme, whatever the file is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError, Problems
from domainbert.labelled.formats import SchemeChoice
from domainbert.labelled.items import Notes, Unit, in_words, label_counts
from domainbert.labelled.plain_items import LabelledStretch, PlainItem
from domainbert.labelled.stretches import joined_words
from domainbert.labelled.tag_schemes import (
    UNNAMED,
    Scheme,
    Span,
    detect_scheme,
    find_violations,
    is_without_types,
    spans_from_tags,
    split_tag,
    to_iob2,
)
from domainbert.labelled.tagged_files import Mark, TaggedFile, TaggedRows, TaggedSentence, read_columns

_LISTED_REPAIRS = 3
_ENTITY = re.compile("[BIESLU](-.|$)")


@dataclass(frozen=True)
class Sentence(TaggedSentence):
    """Words with one IOB2 tag each."""

    @property
    def spans(self) -> list[Span]:
        """The entities: `(start, end, type)` in words, `end` exclusive."""
        return spans_from_tags(self.tags)

    @property
    def labels(self) -> list[str]:
        """The types of the entities."""
        return [kind for _, _, kind in self.spans]


@dataclass(frozen=True)
class NerFile(TaggedFile[Sentence]):
    """Contents of a tagged file, and how it was read."""

    scheme: Scheme
    """The scheme of the file; the tags of the sentences are IOB2 whatever it is."""
    repairs: list[str] = field(default_factory=list)
    """One line for each tag that was rewritten because its scheme forbids it."""
    export: str = ""
    """The format of an annotation tool whose texts are no lines; empty where they are."""

    @property
    def sentences(self) -> Sequence[Sentence]:
        """The items."""
        return self.items

    @override
    def plain_item(self, item: Sentence) -> PlainItem:
        """The sentence as plain item, with its entities as stretches."""
        _, places = joined_words(item.words)
        stretches = (LabelledStretch(places[first][0], places[end - 1][1], label) for first, end, label in item.spans)
        return replace(super().plain_item(item), stretches=tuple(stretches))

    @override
    def units(self) -> list[Unit]:
        """`DomainbertError` if the documents are no lines of the file."""
        if self.export:
            raise DomainbertError(f"{self.path}: {self.export} is not divided into folds; expected CoNLL or JSONL")
        return super().units()

    @property
    def num_spans(self) -> int:
        """Entities of all sentences."""
        return sum(len(sentence.spans) for sentence in self.items)

    @override
    def describe(self) -> str:
        """Lines for a person; of a set of files, those of each file."""
        return "\n".join(part.describe() for part in self.parts) or super().describe()

    @property
    def summary(self) -> str:
        """A line with sizes, layout, scheme and entities of each type, and further lines with repairs."""
        types = label_counts(self.items)
        lines = [
            f"{self.path}: {self.sizes}; scheme {self.scheme}; "
            f"{sum(types.values()):,} entities{f' ({in_words(types)})' if types else ''}"
        ]
        if self.repairs:
            lines.append(f"  {len(self.repairs):,} tags repaired:")
            lines += [f"    {repair}" for repair in self.repairs[:_LISTED_REPAIRS]]
            hidden = len(self.repairs) - _LISTED_REPAIRS
            lines += [f"    ... and {hidden:,} more"] if hidden > 0 else []
        return "\n".join(lines)


def read_conll(
    path: Path,
    token_column: int | str = 0,
    tag_column: int | str = -1,
    scheme: SchemeChoice = "auto",
    repair: bool = False,
) -> NerFile:
    """Read a CoNLL file; its tags come back as IOB2.

    For the arguments see `NerFormat`; `repair` is by the reading of conlleval.

    Raises:
        DomainbertError: as `read_columns`; an unknown tag; a tag that the scheme forbids while `repair` is off; an
            entity at `-DOCSTART-`; no sentence at all.
    """
    table = read_columns(path, token_column, tag_column)
    _check_marks(path, table.marks)
    return tagged_file(path, "conll", table.rows, scheme, repair, table.layout, table.marks)


def _check_marks(path: Path, marks: Sequence[Mark]) -> None:
    """The `-DOCSTART-` lines are no words, so an entity there would be lost."""
    problems = Problems(str(path))
    for mark in marks:
        if mark.tag is not None and _ENTITY.match(mark.tag):
            problems.add(f"{path}:{mark.line}: -DOCSTART- has the tag {mark.tag[:40]!r}; expected O")
    problems.raise_if_any()


def tagged_file(
    path: Path,
    kind: Literal["conll", "jsonl", "rows"],
    rows: Sequence[TaggedRows],
    scheme: SchemeChoice,
    repair: bool,
    layout: str,
    marks: Sequence[Mark] = (),
) -> NerFile:
    """Check the tags of `rows` against the scheme, convert them to IOB2, and collect what was repaired; entities of a
    file without types have the type `UNNAMED`."""
    notes = Notes()
    if is_without_types(tag for row in rows for tag in row.tags):
        notes.changed[f"tags without a type, such as B, read as B-{UNNAMED}"] = sum(
            tag != "O" for row in rows for tag in row.tags
        )
        rows = [row._replace(tags=[tag if tag == "O" else f"{tag}-{UNNAMED}" for tag in row.tags]) for row in rows]
    _check_tags(path, rows)
    try:
        found: Scheme = detect_scheme(row.tags for row in rows) if scheme == "auto" else scheme
    except DomainbertError as error:
        raise DomainbertError(f"{path}:{_line_of_rarer_scheme(rows)}: {error}") from error
    problems, repairs, sentences = Problems(str(path)), [], []
    for row in rows:
        sentences.append(Sentence(row.words, to_iob2(row.tags), row.line, row.document, row.text))
        for violation in find_violations(row.tags, found):
            where = f"{path}:{row.lines[violation.index]}: {violation.reason}"
            if repair:
                repairs.append(f"{where}; read as {violation.expected}")
            else:
                problems.add(f"{where}; expected {violation.expected} (`repair: true` reads it so)")
    problems.raise_if_any()
    lines, names = [mark.line for mark in marks], [mark.name for mark in marks]
    return NerFile(path, sentences, kind, layout, lines, found, repairs, mark_names=names, notes=notes)


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
