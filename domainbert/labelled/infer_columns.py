"""Detects the text and label columns of JSONL, CSV and TSV: by common names, otherwise by their values."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from domainbert.base.errors import DomainbertError, format_names
from domainbert.labelled.file_sample import Sample
from domainbert.labelled.label_names import NAMES_KEY
from domainbert.labelled.row_values import is_visible, parse_list
from domainbert.labelled.rows import is_prodigy_answer

_PAIR_KEYS = (
    ("text", "text_pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("query", "passage"),
)
_LABEL_KEYS = (
    *("label", "labels", "class", "classes", "category", "categories", "target", "gold"),
    *("stance", "sentiment", "relation", "topic", "topics", "score", "rating", "grade"),
)
_MIN_TEXT_WORDS = 3  # minimum mean number of words of a text column
_MAX_CLASSES = 20  # maximum number of classes written as whole numbers, unless they count from 0
_MAX_DISTINCT = 0.5  # maximum ratio of distinct labels to rows
DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class LabelValues:
    """Labels of some rows, as in the file."""

    key: str
    values: Sequence[Any]

    @cached_property
    def numbers(self) -> list[float]:
        """All values as floats, or [] if one is not a number; strings such as "3.5" count as numbers."""
        numbers = [
            float(value)
            for value in self.values
            if (isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max)
            or (isinstance(value, str) and DECIMAL.fullmatch(value.strip()))
        ]
        return numbers if len(numbers) == len(self.values) else []

    @cached_property
    def are_whole(self) -> bool:
        """Whether all are whole numbers; "1" and 1.0 count as whole."""
        return bool(self.numbers) and all(map(float.is_integer, self.numbers))

    @cached_property
    def count_from_zero(self) -> bool:
        """Whether the values are exactly 0, 1, ..., n - 1, with n > 1."""
        distinct = {int(number) for number in self.numbers} if self.are_whole else set()
        return len(distinct) > 1 and distinct == set(range(len(distinct)))

    @cached_property
    def num_distinct(self) -> int:
        """The number of distinct labels."""
        return len({str(value) for value in self.values})

    @property
    def may_be_classes(self) -> bool:
        """Whether the values are repeated names, or few distinct whole numbers."""
        if self.numbers:
            return self.are_whole and (self.count_from_zero or self.num_distinct <= _MAX_CLASSES)
        names = all(isinstance(value, str) and is_visible(value) and parse_list(value) is None for value in self.values)
        return names and self.num_distinct <= max(2, _MAX_DISTINCT * len(self.values))

    @property
    def may_be_quantities(self) -> bool:
        """Whether the values are numbers other than class indices."""
        return bool(self.numbers) and not self.count_from_zero

    @property
    def are_lists(self) -> bool:
        """Whether each value is a list of names or numbers; strings written by pandas count as lists."""
        lists = [parse_list(value) if isinstance(value, str) else value for value in self.values]
        return all(isinstance(value, list) and all(map(_is_label, value)) for value in lists)


@dataclass(frozen=True)
class RowKeys:
    """Keys of the text and the second text of pairs, and the labels with their key."""

    text: str
    pair: str | None
    labels: LabelValues
    quoting: str

    @property
    def format_fields(self) -> dict[str, Any]:
        """The fields of a `RowFormat`."""
        keys = {"text_key": self.text, "text_pair_key": self.pair, "label_key": self.labels.key}
        return {**keys, "quoting": self.quoting}

    @property
    def description(self) -> str:
        """The text keys as text for the terminal, such as "texts under 'text'"."""
        return f"texts under {self.text!r}" + (f" and {self.pair!r}, pairs" if self.pair else "")


def row_keys(sample: Sample) -> RowKeys | None:
    """Return the keys of texts and labels of a sample; None if it has no rows or no labels.

    Raise `DomainbertError` if no column, or more than one, may be the text or label, or a table has no header.
    """
    if not sample.rows:
        return None
    if len({key for row in sample.rows for key in row}) == 1:  # of a table, probably another delimiter
        expected = "texts and labels under two keys, or in columns separated by commas (.csv) or tabs (.tsv)"
        raise DomainbertError(f"a single key, {format_names(sample.rows[0])}", file=sample.path, expected=expected)
    for option in ("text_key", "text_pair_key", "label_key"):
        option_key = sample.options.get(option)
        if option_key is not None and not any(option_key in row for row in sample.rows):
            expected = f"one of {format_names(sample.rows[0])}"
            raise DomainbertError(f"--{option} {option_key}: no row has this key", file=sample.path, expected=expected)
    text, pair = _text_keys(sample)
    key = _label_key(sample, (text, pair))
    labels = LabelValues(key, _present_values(sample, key))
    return RowKeys(text, pair, labels, sample.quoting) if labels.values else None


def _present_values(sample: Sample, key: str) -> list[Any]:
    # the reader of the task reports rows with a missing value
    return [row[key] for row in sample.rows if row.get(key) not in (None, "")]


def _text_keys(sample: Sample) -> tuple[str, str | None]:
    text_key, pair_key = sample.options.get("text_key"), sample.options.get("text_pair_key")
    if text_key is not None:
        return text_key, pair_key
    unlabelled = [key for key in sample.rows[0] if key != sample.options.get("label_key")]
    strings = [key for key in unlabelled if all(isinstance(row.get(key), str) for row in sample.rows)]
    for usual_pair in _PAIR_KEYS:
        if set(usual_pair) <= set(strings) and pair_key in (None, usual_pair[1]):
            return usual_pair
    candidates = [key for key in strings if key != pair_key]
    if "text" in candidates:
        return "text", pair_key
    return _key_of_long_texts(sample, candidates), pair_key


def _key_of_long_texts(sample: Sample, candidates: Sequence[str]) -> str:
    min_words = _MIN_TEXT_WORDS * len(sample.rows)
    num_words = {key: sum(len(row[key].split()) for row in sample.rows) for key in candidates if key not in _LABEL_KEYS}
    texts = [key for key, count in num_words.items() if count >= min_words]
    if len(texts) > 1:
        raise DomainbertError(
            f"the text may be under {format_names(texts)}",
            file=sample.path,
            expected="--text_key KEY, and for pairs of texts --text_pair_key KEY",
        )
    if not texts:
        found = f"no key with texts (found {format_names(sample.rows[0])})"
        raise DomainbertError(found, file=sample.path, hint=f"choose one with --text_key KEY{_or_header(sample)}")
    return texts[0]


def _label_key(sample: Sample, text_keys: Sequence[str | None]) -> str:
    if "label_key" in sample.options:
        return sample.options["label_key"]
    other_keys = (key for key in sample.rows[0] if key not in (*text_keys, NAMES_KEY))
    keys = [key for key in other_keys if not is_prodigy_answer(sample.rows, key)]
    usual = [key for key in keys if key.lower() in _LABEL_KEYS]
    candidates = usual or [key for key in keys if _may_be_labels(_present_values(sample, key))]
    if len(candidates) != 1:
        found = f"the label may be under {format_names(candidates)}"
        if not candidates:
            found = f"no key with labels (found {format_names(sample.rows[0])})"
        raise DomainbertError(found, file=sample.path, hint=f"choose one with --label_key KEY{_or_header(sample)}")
    _check_header(sample, text_keys, candidates[0])
    return candidates[0]


def _check_header(sample: Sample, text_keys: Sequence[str | None], label_key: str) -> None:
    # the first line of a table is a row, if its texts have words and its label recurs
    has_text_in_header = any(len((text_key or "").split()) >= _MIN_TEXT_WORDS for text_key in text_keys)
    if _or_header(sample) and has_text_in_header and label_key in _present_values(sample, label_key):
        found = f"the header names the column of the labels {label_key!r}, which is also one of its labels"
        expected = f"column names first, or --label_key {label_key}"
        raise DomainbertError(found, file=sample.path, line=1, expected=expected)


def _or_header(sample: Sample) -> str:
    # the first line of a table may be a row
    return ", or add a header" if sample.kind in ("csv", "tsv") else ""


def _may_be_labels(values: Sequence[Any]) -> bool:
    if not values:
        return False
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        return len(lists) == len(values) and any(lists) and all(map(_is_label, chain(*lists)))
    if not all(map(_is_label, values)):
        return False
    return isinstance(values[0], float) or len(set(values)) <= max(2, _MAX_DISTINCT * len(values))


def _is_label(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)
