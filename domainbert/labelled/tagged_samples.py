"""Words with a tag each at the beginning of a labelled file, whatever the tags mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from domainbert.labelled.file_sample import Sample
from domainbert.labelled.json_values import is_whole_number
from domainbert.labelled.label_names import NAMES_KEY
from domainbert.labelled.set_rows import Row

_WORDS = ("tokens", "words")
_TAGS = ("tags", "ner_tags", "pos_tags", "labels")


@dataclass(frozen=True)
class TaggedSample:
    """The tags of some words."""

    tags: Sequence[str]
    reason: str
    """Their place."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a `TaggedColumns` that are not as usual."""


def tagged_sample(sample: Sample) -> TaggedSample | None:
    """The tags of a sample: the last column of CoNLL, or lists beside those of words; None if it has none."""
    if sample.words:
        width = len(sample.words[0])
        return TaggedSample([columns[-1] for columns in sample.words], f"in the last of {width} columns")
    first = sample.rows[0] if sample.rows and sample.kind == "jsonl" else {}
    words = next((key for key in _WORDS if isinstance(first.get(key), list)), None)
    asked = (sample.asked["label_key"],) if "label_key" in sample.asked else _TAGS
    tags = next((key for key in asked if words is not None and isinstance(first.get(key), list)), None)
    if words is None or tags is None:
        return None
    columns = {"token_column": words} if words != _WORDS[0] else {}
    columns |= {"tag_column": tags} if tags not in _TAGS[:2] or sum(key in first for key in _TAGS) > 1 else {}
    found = list(_names(sample.rows, tags, first.get(NAMES_KEY)))
    return TaggedSample(found, f"under {tags!r}", columns)


def _names(rows: Sequence[Row], key: str, names: Any) -> Iterator[str]:
    """The tags of all rows; numbers as the names that the first row gives them."""
    for row in rows:
        values = row.get(key)
        for value in values if isinstance(values, list) else []:
            if is_whole_number(value) and isinstance(names, list) and 0 <= value < len(names):
                yield str(names[value])
            else:
                yield str(value)
