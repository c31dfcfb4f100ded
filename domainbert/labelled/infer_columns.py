"""Columns of text and label in rows of JSONL, CSV and TSV: by the usual names, else by what the values are."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from domainbert.base.errors import DomainbertError, listed
from domainbert.labelled.file_sample import Sample
from domainbert.labelled.label_names import NAMES_KEY, is_visible, list_in
from domainbert.labelled.rows import is_answer

_PAIRS = (
    ("text", "text_pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("query", "passage"),
)
_LABELS = (
    *("label", "labels", "class", "classes", "category", "categories", "target", "gold"),
    *("stance", "sentiment", "relation", "topic", "topics", "score", "rating", "grade"),
)
_TEXT_WORDS = 3  # on average, of what is a text and no label
_MOST_CLASSES = 20  # that whole numbers may stand for, unless they count from 0
_PART_OF_ROWS = 0.5  # there are fewer different labels than that
DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class LabelValues:
    """The labels of some rows, as they stand there."""

    key: str
    values: Sequence[Any]

    @cached_property
    def numbers(self) -> list[float]:
        """The numbers, where all are such, in digits too."""
        found = [
            float(value)
            for value in self.values
            if (isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max)
            or (isinstance(value, str) and DECIMAL.fullmatch(value.strip()))
        ]
        return found if len(found) == len(self.values) else []

    @cached_property
    def are_whole(self) -> bool:
        """Whether all are whole numbers, in digits or as 1.0 too."""
        return bool(self.numbers) and all(map(float.is_integer, self.numbers))

    @cached_property
    def count_from_zero(self) -> bool:
        """Whether they are 0, 1, 2 and so on, each of which occurs."""
        different = {int(number) for number in self.numbers} if self.are_whole else set()
        return len(different) > 1 and different == set(range(len(different)))

    @cached_property
    def different(self) -> int:
        """The number of different ones there are."""
        return len({str(value) for value in self.values})

    @property
    def may_be_classes(self) -> bool:
        """Whether they are names, of which some occur often, or few whole numbers."""
        if self.numbers:
            return self.are_whole and (self.count_from_zero or self.different <= _MOST_CLASSES)
        names = all(isinstance(value, str) and is_visible(value) and list_in(value) is None for value in self.values)
        return names and self.different <= max(2, _PART_OF_ROWS * len(self.values))

    @property
    def may_be_quantities(self) -> bool:
        """Whether they are numbers that may be more and less of something."""
        return bool(self.numbers) and not self.count_from_zero

    @property
    def are_lists(self) -> bool:
        """Whether each is a list of names or numbers, as pandas writes it in a column too."""
        lists = [list_in(value) if isinstance(value, str) else value for value in self.values]
        return all(isinstance(value, list) and all(map(_is_label, value)) for value in lists)


@dataclass(frozen=True)
class RowKeys:
    """The keys of the text, of the second text of pairs, and the labels with theirs."""

    text: str
    pair: str | None
    labels: LabelValues
    quoting: str

    @property
    def of_format(self) -> dict[str, Any]:
        """The fields of a `RowFormat`."""
        keys = {"text_key": self.text, "text_pair_key": self.pair, "label_key": self.labels.key}
        return {**keys, "quoting": self.quoting}

    @property
    def in_words(self) -> str:
        """The keys of what is read, for a person."""
        return f"texts under {self.text!r}" + (f" and {self.pair!r}, pairs" if self.pair else "")


def row_keys(sample: Sample) -> RowKeys | None:
    """The keys of a sample; None if it has no rows.

    Raises:
        DomainbertError: there is no text or label, or more than one may be it; it names the option that says which.
    """
    if not sample.rows:
        return None
    text, pair = _text_keys(sample)
    key = _label_key(sample, (text, pair))
    labels = LabelValues(key, _given(sample, key))
    return RowKeys(text, pair, labels, sample.quoting) if labels.values else None


def _given(sample: Sample, key: str) -> list[Any]:
    """The values of a key; the reader of the task names the rows that lack some."""
    return [row[key] for row in sample.rows if row.get(key) not in (None, "")]


def _text_keys(sample: Sample) -> tuple[str, str | None]:
    asked, given = sample.asked.get("text_key"), sample.asked.get("text_pair_key")
    for option in ("text_key", "text_pair_key", "label_key"):
        _check_there(sample, option)
    if asked is not None:
        return asked, given
    strings = [key for key in sample.rows[0] if all(isinstance(row.get(key), str) for row in sample.rows)]
    for pair in _PAIRS:
        if set(pair) <= set(strings):
            return pair
    if "text" in strings:
        return "text", given
    texts = [key for key in strings if _mean_words(sample, key) >= _TEXT_WORDS and key not in _LABELS]
    if len(texts) > 1:
        raise DomainbertError(
            f"{sample.path}: the text may stand under {listed(texts)}; expected --text_key KEY, and for pairs of texts "
            "--text_pair_key KEY"
        )
    if not texts:
        raise DomainbertError(f"{sample.path}: no text under {listed(sample.rows[0])}; expected --text_key KEY")
    return texts[0], given


def _check_there(sample: Sample, option: str) -> None:
    key = sample.asked.get(option)
    if key is not None and not any(key in row for row in sample.rows):
        raise DomainbertError(
            f"{sample.path}: --{option} {key}: no row has it; expected one of {listed(sample.rows[0])}"
        )


def _mean_words(sample: Sample, key: str) -> float:
    return sum(len(row[key].split()) for row in sample.rows) / len(sample.rows)


def _label_key(sample: Sample, texts: Sequence[str | None]) -> str:
    if "label_key" in sample.asked:
        return sample.asked["label_key"]
    keys = [key for key in sample.rows[0] if key not in (*texts, NAMES_KEY) and not is_answer(sample.rows, key)]
    usual = [key for key in keys if key.lower() in _LABELS]
    found = usual or [key for key in keys if _may_be_labels(_given(sample, key))]
    if len(found) != 1:
        where = f"may stand under {listed(found)}" if found else f"stands under none of {listed(sample.rows[0])}"
        raise DomainbertError(f"{sample.path}: the label {where}; expected --label_key KEY")
    return found[0]


def _may_be_labels(values: Sequence[Any]) -> bool:
    """Whether values repeat themselves, or are numbers or lists of such."""
    if not values:
        return False
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        return len(lists) == len(values) and any(lists) and all(map(_is_label, (one for many in lists for one in many)))
    if not all(map(_is_label, values)):
        return False
    return isinstance(values[0], float) or len(Counter(values)) <= max(2, _PART_OF_ROWS * len(values))


def _is_label(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)
