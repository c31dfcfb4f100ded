"""Tagged sentences as IOB2: validates the tags of a file of any format against their scheme."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from typing_extensions import override

from domainbert.base.errors import DomainbertError, Problems, counted
from domainbert.labelled.char_spans import join_words
from domainbert.labelled.conll import TaggedRows, TaggedTable
from domainbert.labelled.formats import NerFormat
from domainbert.labelled.items import LabelledSpan, PlainItem, ReaderCounts, Unit, format_counts, label_counts
from domainbert.labelled.tag_schemes import (
    UNNAMED,
    Scheme,
    Span,
    detect_scheme,
    find_violations,
    is_without_types,
    select_types,
    spans_from_tags,
    split_tag,
    to_iob2,
)
from domainbert.labelled.tagged_files import TaggedFile, TaggedSentence

_LISTED_REPAIRS = 3
_ENTITY_TAG = re.compile("[BIESLU](-.|$)")


@dataclass(frozen=True)
class Sentence(TaggedSentence):
    """Words with one IOB2 tag each."""

    @property
    def spans(self) -> list[Span]:
        """Return the entities."""
        return spans_from_tags(self.tags)

    @property
    def labels(self) -> list[str]:
        """Return the types of the entities, with repetitions."""
        return [label for _, _, label in self.spans]


@dataclass(frozen=True)
class NerFile(TaggedFile[Sentence]):
    """Sentences of a tagged file, and how the file was read."""

    scheme: Scheme
    """Scheme of the tags in the file; the tags of `items` are always IOB2."""
    repairs: list[str] = field(default_factory=list)
    """A line for each tag that was rewritten because the scheme forbids it."""
    export: str = ""
    """Name of the annotation tool's format, if texts do not correspond to lines; otherwise empty."""

    @property
    def sentences(self) -> Sequence[Sentence]:
        """Return the items."""
        return self.items

    @override
    def plain_item(self, item: Sentence) -> PlainItem:
        _, offsets = join_words(item.words)
        stretches = (LabelledSpan(offsets[first][0], offsets[end - 1][1], label) for first, end, label in item.spans)
        return replace(super().plain_item(item), stretches=tuple(stretches))

    @override
    def units(self) -> list[Unit]:
        if self.export:
            raise DomainbertError(
                f"k_folds and init cannot split {self.export}",
                file=self.path,
                expected="CoNLL or JSONL, or separate training, validation and test files without k_folds",
            )
        return super().units()

    @property
    def num_spans(self) -> int:
        """Return the number of entities in all sentences."""
        return sum(len(sentence.spans) for sentence in self.items)

    @property
    @override
    def summary(self) -> str:
        types = label_counts(self.items)
        lines = [
            f"{self.path}: {self.size_summary}; {self.layout}; scheme {self.scheme}; "
            f"{counted(sum(types.values()), 'entities')}{f' ({format_counts(types)})' if types else ''}"
        ]
        if self.repairs:
            lines.append(f"  tags repaired ({len(self.repairs):,}):")
            lines += [f"    {repair}" for repair in self.repairs[:_LISTED_REPAIRS]]
            hidden = len(self.repairs) - _LISTED_REPAIRS
            if hidden > 0:
                lines.append(f"    ... and {hidden:,} more")
        return "\n".join(lines)


def tagged_file(path: Path, table: TaggedTable, format: NerFormat, notes: ReaderCounts, export: str = "") -> NerFile:
    """Return the sentences of a table as a file whose tags are converted to IOB2, with the entities of `format.types`.

    Entities of a file without types get the type `UNNAMED`. For `export` see `NerFile`.

    Raises:
        DomainbertError: an unknown tag; a tag that the scheme forbids, which `format.repair` rewrites and lists in
            `NerFile.repairs`; an entity at `-DOCSTART-`.
    """
    rows = _typed_rows(path, table, notes)
    choice = table.scheme or format.scheme
    try:
        scheme: Scheme = detect_scheme(row.tags for row in rows) if choice == "auto" else choice
    except DomainbertError as error:
        raise error.within(file=path, line=_line_of_rarer_scheme(rows)) from error

    problems = Problems(str(path))
    repairs, sentences = [], []
    for row in rows:
        sentences.append(Sentence(row.words, to_iob2(row.tags), row.line, row.document, row.text, row.file))
        for violation in find_violations(row.tags, scheme):
            line = row.lines[violation.index]
            if format.repair:
                repairs.append(f"{path}:{line}: {violation.reason}; read as {violation.expected}")
            else:
                expected = f"{violation.expected} (format.repair: true rewrites it)"
                problems.add(violation.reason, file=path, line=line, expected=expected)
    problems.raise_if_any()
    if format.types is not None:
        labels = (label for sentence in sentences for label in sentence.labels)
        notes.left_out.update(entities_left_out(label) for label in labels if not format.keeps(label))
        sentences = [replace(sentence, tags=select_types(sentence.tags, format.keeps)) for sentence in sentences]
    return NerFile(path, sentences, table.kind, table.layout, table.marks, scheme, repairs, export, notes=notes)


def entities_left_out(entity_type: str) -> str:
    """Return the name under which notes count the entities of a type that is not selected."""
    return f"entities of the type {entity_type!r}"


def _line_of_rarer_scheme(rows: Sequence[TaggedRows]) -> int:
    tag_lines = [tag_and_line for row in rows for tag_and_line in zip(row.tags, row.lines, strict=True)]
    bioes_lines = [line for tag, line in tag_lines if tag[0] in "ES"]
    bilou_lines = [line for tag, line in tag_lines if tag[0] in "LU"]
    return min(bioes_lines, bilou_lines, key=len)[0]


def _typed_rows(path: Path, table: TaggedTable, notes: ReaderCounts) -> list[TaggedRows]:
    """Return the rows with valid tags, each with a type."""
    rows, problems = table.rows, Problems(str(path))
    if is_without_types(tag for row in rows for tag in row.tags):
        num_tagged = sum(tag != "O" for row in rows for tag in row.tags)
        notes.changed[f"tags without a type, such as B, read as B-{UNNAMED}"] = num_tagged
        rows = [row._replace(tags=[tag if tag == "O" else f"{tag}-{UNNAMED}" for tag in row.tags]) for row in rows]
    for mark in table.marks:  # not words, so their entities would be lost
        if mark.tag is not None and _ENTITY_TAG.match(mark.tag):
            problems.add(f"-DOCSTART- has the tag {mark.tag[:40]!r}", file=path, line=mark.line, expected="O")
    problems.raise_if_any()
    for row in rows:
        for tag, line in zip(row.tags, row.lines, strict=True):
            try:
                split_tag(tag)
            except DomainbertError as error:
                problems.add(error.within(file=row.file or path, line=line))
    problems.raise_if_any()
    return rows
