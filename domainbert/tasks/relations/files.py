"""Texts with two entities and the relation between them in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from typing_extensions import override

from domainbert.base.errors import Problems
from domainbert.corpus.file_kind import FileKind
from domainbert.labelled.items import Labelled, Notes, Unit, in_words, label_counts, label_set
from domainbert.labelled.label_names import LabelReader
from domainbert.labelled.plain_items import PlainItem
from domainbert.labelled.row_values import parsed, refuse
from domainbert.labelled.rows import placed, problems_with_slices, slices_of, some_texts, text_rows
from domainbert.labelled.sets import Readable, path_of
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.relations.marked import MarkedText, marked_text


@dataclass(frozen=True)
class RelatedEntities:
    """A text with two marked entities, their relation, and the line of the file where they stand."""

    content: MarkedText
    label: str
    line: int
    by: Mapping[str, str] = field(default_factory=dict)
    """The slices that they are in, by key."""

    @property
    def labels(self) -> tuple[str]:
        """The relation."""
        return (self.label,)


@dataclass(frozen=True)
class RelationFile(Labelled[RelatedEntities]):
    """Contents of a file of relations, and how it was read."""

    nameless: bool = False
    """The relations are numbers without names; each is called by its number."""

    @property
    @override
    def unit(self) -> str:
        return "different texts"

    @cached_property
    @override
    def unit_numbers(self) -> list[int]:
        """The number of each item's text without markers; the pairs of one text are not independent."""
        numbers: dict[str, int] = {}
        return [numbers.setdefault(item.content.unmarked, len(numbers)) for item in self.items]

    @property
    def summary(self) -> str:
        """A line with the kind of file, the number of texts and of each relation."""
        counts = label_counts(self.items)
        said = f"{self.path}: {len(self.items):,} texts; {FileKind(self.kind)}; {len(counts)} relations"
        nameless = "; relations are numbers without names (set label_names)" if self.nameless else ""
        return f"{said} ({in_words(counts)}){nameless}"

    @override
    def plain_item(self, item: RelatedEntities) -> PlainItem:
        """The item as its text without markers, which is the document of all its pairs."""
        text, marked = item.content.written(("", "", "", ""))
        return PlainItem((text,), (item.label,), item.label, tuple(marked), document_name=item.content.unmarked)

    def units(self) -> list[Unit]:
        """The texts, those together that follow each other and differ in the marked entities alone."""
        groups = [list(group) for _, group in groupby(self.items, key=lambda item: item.content.unmarked)]
        return [Unit(group[0].line, frozenset(label_set(group)), group[0].label) for group in groups]


def read(config: Relations, file: Readable) -> RelationFile:
    """See `TaskConfig.read`. Relations are names, or numbers as classes are.

    Raises:
        DomainbertError: as for classes, of rows and labels; as `marked_text`, of entities.
    """
    format, problems, notes = config.format, Problems(str(file)), Notes()
    kind, names, rows = text_rows(file, format, problems, notes)
    labels = LabelReader(format.label_key, names)

    def parse(row: dict[str, Any], line: int) -> RelatedEntities:
        content = marked_text(row, format.text_key, format)
        refuse(placed(labels.problem_with(row, line), file, line), *problems_with_slices(row, format.by))
        return RelatedEntities(content, labels.name(row[format.label_key]), line, slices_of(row, format.by))

    items = some_texts(parsed(rows, problems, parse), format, problems)
    return RelationFile(path_of(file), items, kind, labels.nameless, notes=notes)
