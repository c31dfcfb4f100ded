"""Formats of labelled files: keys, columns and tag schemes, set by `format` of a task in a YAML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import CheckedFields, Column, renamed_from

ENTITY_KEYS = ("entities", "spans", "ents")
"""Keys of entity lists: of domainbert, Prodigy and spaCy."""

SchemeChoice = Literal["auto", "IOB1", "IOB2", "BIOES", "BILOU"]


@dataclass(frozen=True)
class RowFormat:
    """Keys or columns of the text, or pair of texts, and its labels in a JSONL, CSV or TSV file."""

    text_key: str = "text"
    """Key (JSONL) or column (CSV, TSV) of the text."""

    text_pair_key: str | None = None
    """Key or column of the second text of a pair; null for single texts."""

    label_key: str = "label"
    """Key or column of the labels."""

    kind: Literal["auto", "jsonl", "csv", "tsv"] = "auto"
    """File format; "auto" detects it from the first lines, then the suffix, and prints it."""

    quoting: Literal["double", "none"] = "double"
    """Quoting of CSV and TSV: "double" allows separators, line breaks and doubled quotes in texts between double
    quotes; "none" reads a quote as an ordinary character, as files of GLUE require."""

    slice_keys: tuple[str, ...] = field(default=(), metadata=renamed_from("by"))
    """Keys or columns such as `language` or `year`; `evaluate` also scores each of their values separately."""

    def __post_init__(self) -> None:
        for name in ("text_pair_key", "label_key"):
            key = getattr(self, name)
            if self.keys.count(key) > 1:
                names = ("text_key", "text_pair_key", "label_key")
                others = [other for other in names if other != name and getattr(self, other) == key]
                raise DomainbertError(where=name, found=f"{key!r}, as for {others[0]}", expected="different keys")

    @property
    def keys(self) -> list[str]:
        """Return the keys or columns that a file must have: text, second text of pairs, labels."""
        return [key for key in (self.text_key, self.text_pair_key, self.label_key) if key is not None]


@dataclass(frozen=True)
class LabelNames:
    """Names of labels or tags that the file has as numbers."""

    label_names: tuple[str, ...] | None = None
    """Names of the labels 0, 1, ... if the file has labels as numbers. The first row may also give them, as a list
    under "label_names"."""

    label_names_file: Path | None = None
    """JSON file with the label names: a list, an object such as {"0": "O"}, or a `config.json` with `id2label`."""


@dataclass(frozen=True)
class TextFormat(LabelNames, RowFormat):
    """A row format for labels that have names."""


@dataclass(frozen=True)
class TaggedColumns(CheckedFields):
    """Columns of words and tags in a CoNLL or JSONL file."""

    token_column: Column | str = 0
    """Column of the words in CoNLL: a number from 0 (negative counts from the end), or a name if the first line names
    the columns. In JSONL: key of the list of words; a number selects the key "tokens"."""

    tag_column: Column | str = -1
    """Column of the tags in CoNLL, as `token_column`. In JSONL: key of the list of tags; a number selects "tags" or
    "ner_tags"."""


@dataclass(frozen=True)
class TaggedFormat(LabelNames, TaggedColumns):
    """Columns of words and tags in a CoNLL or JSONL file."""

    kind: Literal["auto", "conll", "jsonl"] = "auto"
    """File format; "auto" detects it from the first lines, then the suffix, and prints it."""


@dataclass(frozen=True)
class NerFormat(LabelNames, TaggedColumns):
    """Columns of words and entity tags in a CoNLL or JSONL file."""

    scheme: SchemeChoice = "auto"
    """Tag scheme of the file; "auto" detects and prints it."""

    repair: bool = False
    """Rewrite tags that the scheme forbids (a stray I-X becomes B-X) and list them; by default they are errors."""

    kind: Literal["auto", "conll", "jsonl", "json", "label_studio", "brat"] = "auto"
    """File format; "auto" detects it from the first lines, then the suffix, and prints it; a folder is read as brat."""

    text_key: str = "text"
    """Key of the text, in JSONL with entities as character offsets. Texts are split into words at white space and
    punctuation, as in BERT; an entity must begin and end at word boundaries."""

    entity_key: str | None = None
    """Key of the entities, in JSONL with character offsets: a list of objects with `start`, `end` and `label` (or
    `type`, as `predict` writes them), or of lists of the three values. null selects the key "entities", "spans"
    (Prodigy) or "ents" (spaCy), whichever the first row has."""

    trim: bool = False
    """Remove white space that annotators marked at the ends of entities, and print the number of these entities; by
    default it is an error."""

    types: tuple[str, ...] | None = None
    """Entity types to read, such as one layer of nested entities. Entities of other types are left out and counted;
    `evaluate` also ignores predictions of these types. null reads all types."""

    annotator: str | None = None
    """Annotator in Label Studio whose annotations are read: the id or e-mail address under `completed_by`. null
    requires that all annotations of a text agree."""

    def keeps(self, entity_type: str) -> bool:
        """Whether entities of a type are read."""
        return self.types is None or entity_type in self.types
