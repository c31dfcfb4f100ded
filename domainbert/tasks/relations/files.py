"""Reader of texts with two entities and their relation in JSONL, CSV or TSV. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from typing_extensions import override

from domainbert.base.errors import counted
from domainbert.corpus.file_kind import KIND_NAMES
from domainbert.corpus.rows import Row
from domainbert.labelled.items import Labelled, PlainItem, Unit, describe_labels, distinct_indices, label_set
from domainbert.labelled.row_values import parse_rows, raise_problems
from domainbert.labelled.rows import TextRows, problems_with_slices
from domainbert.labelled.sets import Readable
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.relations.marked import NO_MARKERS, MarkedText, marked_text


@dataclass(frozen=True)
class RelatedEntities:
    """A text with two marked entities, their relation and line number."""

    content: MarkedText
    label: str
    line: int
    slices: Mapping[str, str] = field(default_factory=dict)
    """Slices (subgroups for evaluation): value by key."""

    @property
    def labels(self) -> tuple[str]:
        """Return a tuple with only the relation."""
        return (self.label,)


@dataclass(frozen=True)
class RelationFile(Labelled[RelatedEntities]):
    """A file of texts with relations."""

    @property
    @override
    def unit(self) -> str:
        return "texts" if self.unit_ids is None else "different texts"

    @cached_property
    @override
    def unit_ids(self) -> list[int] | None:
        """Return for each item the index of its unmarked text, as pairs from the same text are not independent.

        Return None for pairs of a single text, of which all resamples would be equal.
        """
        text_ids = distinct_indices(item.content.unmarked for item in self.items)
        return text_ids if max(text_ids, default=0) > 0 else None

    @property
    def summary(self) -> str:
        """Return a line with the file format and the numbers of texts and of each relation."""
        texts = f"{self.path}: {counted(len(self.items), 'texts')}; {KIND_NAMES[self.kind]}"
        return f"{texts}; {describe_labels(self.items, 'relations', self.nameless)}"

    @override
    def plain_item(self, item: RelatedEntities) -> PlainItem:
        """Return the item as a `PlainItem`, which the data checks read; all pairs of a text are one document."""
        text, marker_starts = item.content.with_markers(NO_MARKERS)
        return PlainItem(
            texts=(text,),
            labels=(item.label,),
            target=item.label,
            marks=tuple(marker_starts),
            document_name=item.content.unmarked,
        )

    def units(self) -> list[Unit]:
        """Return one unit per run of adjacent items that differ only in the marked entities."""
        groups = [list(group) for _, group in groupby(self.items, key=lambda item: item.content.unmarked)]
        # a unit begins at the line of its first item, and is stratified by the relation of this item
        return [Unit(group[0].line, frozenset(label_set(group)), group[0].label) for group in groups]


def read(config: Relations, file: Readable) -> RelationFile:
    """Return the texts of a file, for `TaskConfig.read`; relations are names or numbers, as in classification. For the
    entities see `marked_text`."""
    format = config.format
    source = TextRows(file, format)
    labels = source.label_reader(format)

    def parse(row: Row, line: int) -> RelatedEntities:
        content = marked_text(row, format.text_key, format)
        label_problem = source.with_location(labels.problem_with(row, line), line)
        raise_problems(label_problem, *problems_with_slices(row, format.slice_keys))
        slices = {key: str(row[key]) for key in format.slice_keys}
        return RelatedEntities(content, labels.name(row[format.label_key]), line, slices)

    items = source.require(parse_rows(source.rows, source.problems, parse))
    return RelationFile(source.path, items, source.kind, notes=source.notes, nameless=labels.nameless)
