"""Formats of labelled files: the keys, columns and tag schemes that a task's `format` sets in a YAML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Column
from domainbert.base.validation import check_fields

ENTITY_KEYS = ("entities", "spans", "ents")
"""Keys of lists of entities: domainbert's own, Prodigy's and spaCy's."""

SchemeChoice = Literal["auto", "IOB1", "IOB2", "BIOES", "BILOU"]


@dataclass(frozen=True)
class RowFormat:
    """Columns of a text, or a pair of texts, and its labels in a JSONL, CSV or TSV file."""

    text_key: str = "text"
    """Key (JSONL) or column (CSV, TSV) of the text."""

    text_pair_key: str | None = None
    """Key or column of the second text, where pairs of texts are read; None where each text stands by itself."""

    label_key: str = "label"
    """Key or column of its labels."""

    kind: Literal["auto", "jsonl", "csv", "tsv"] = "auto"
    """Format of the file; "auto" goes by its first lines, then by its suffix, and prints it."""

    quoting: Literal["double", "none"] = "double"
    """In CSV and TSV a text in double quotes may hold separators, line breaks and quotes, which are doubled. "none"
    reads a quote as a character like any other, as files of GLUE need it."""

    by: tuple[str, ...] = ()
    """Keys or columns such as `language` or `year`, whose values are slices that `evaluate` scores apart."""

    def __post_init__(self) -> None:
        """Check that no two of the keys are one."""
        for name in ("text_pair_key", "label_key"):
            key = getattr(self, name)
            if self.keys.count(key) > 1:
                raise DomainbertError(f"{name}: found {key!r}, which is another key too; expected different ones")

    @property
    def keys(self) -> list[str]:
        """The keys or columns that a file has to have."""
        return [key for key in (self.text_key, self.text_pair_key, self.label_key) if key is not None]


@dataclass(frozen=True)
class TextFormat(RowFormat):
    """The same for labels that have names."""

    label_names: tuple[str, ...] | None = None
    """Names of the numbers 0, 1, ... in a file that has classes as numbers. They may also stand in its first row,
    as a list under "label_names"."""

    label_names_file: Path | None = None
    """A JSON file with these names: a list, an object such as {"0": "O"}, or a `config.json` with `id2label`."""


@dataclass(frozen=True)
class TaggedColumns:
    """Columns of words and tags in a CoNLL or JSONL file, and names of tags that are numbers."""

    token_column: Column | str = 0
    """Column of the words in CoNLL: a number from 0 (negative counts from the end), or a name if the first line names
    the columns. In JSONL a name is the key of the list of words; a number means the key "tokens"."""

    tag_column: Column | str = -1
    """Column of the tags, likewise. In JSONL a number means the key "tags", or "ner_tags"."""

    label_names: tuple[str, ...] | None = None
    """Names of the numbers 0, 1, ... in a file that has tags as numbers. They may also stand in its first row,
    as a list under "label_names"."""

    label_names_file: Path | None = None
    """A JSON file with these names: a list, an object such as {"0": "O"}, or a `config.json` with `id2label`."""

    def __post_init__(self) -> None:
        """Check the columns."""
        check_fields(self)


@dataclass(frozen=True)
class TaggedFormat(TaggedColumns):
    """Columns of words and tags in a CoNLL or JSONL file."""

    kind: Literal["auto", "conll", "jsonl"] = "auto"
    """Format of the file; "auto" goes by its first lines, then by its suffix, and prints it."""


@dataclass(frozen=True)
class NerFormat(TaggedColumns):
    """Columns of words and entity tags in a CoNLL or JSONL file."""

    scheme: SchemeChoice = "auto"
    """Tag scheme of the file; "auto" detects and prints it."""

    repair: bool = False
    """Rewrite tags that the scheme forbids (a stray I-X becomes B-X), and list them. Otherwise they are errors."""

    kind: Literal["auto", "conll", "jsonl", "json", "label_studio", "brat"] = "auto"
    """Format of the file; "auto" goes by its first lines, then by its suffix, and prints it. A folder is brat's."""

    text_key: str = "text"
    """JSONL with entities as stretches of characters: the key of the text. Its words are cut at white space and
    punctuation, as BERT does, so that an entity has to begin and end with words."""

    entity_key: str | None = None
    """The key of such entities: a list of objects with `start`, `end` and `label` (or `type`, as `predict` writes
    them), or of lists of the three. null means the key "entities", "spans" (Prodigy) or "ents" (spaCy), where the first
    row has it."""

    trim: bool = False
    """Leave out white space at the ends of such entities, as annotators mark by accident; the number of entities is
    printed. Otherwise an entity has to begin and end with words."""

    types: tuple[str, ...] | None = None
    """The types of entities that are read, such as one layer of nested entities; those of others are left out and
    counted, and in `evaluate` are left out of what models predict, too. null reads all."""

    annotator: str | None = None
    """Label Studio: whose annotations are read, by the number or the address under `completed_by`. null means that
    several annotations of a text have to agree."""

    def keeps(self, kind: str) -> bool:
        """Whether entities of a type are read."""
        return self.types is None or kind in self.types
