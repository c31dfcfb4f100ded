"""Names of numeric labels, as in data sets of the Hugging Face hub."""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, format_names
from domainbert.corpus.rows import Row
from domainbert.labelled.formats import LabelNames
from domainbert.labelled.row_values import (
    TOO_MANY_DIGITS,
    is_visible,
    is_whole_number,
    parse_list,
    problem_with_text,
    shown,
    wrong_value,
)

NAMES_KEY = "label_names"
"""Key of the list of label names in the first row of a JSONL file."""

_EXPECTED = 'a list of names, or an object such as {"0": "O", "1": "B-gene"}'


def label_names(format: LabelNames, first_row: Mapping[str, Any], where: str) -> list[str] | None:
    """Return the names of the labels 0, 1, ... from settings, a file or the first row; None without names.

    `where` locates the first row in messages. Raise `DomainbertError` if several of them have names.
    """
    sources: dict[str, Any] = {}
    if format.label_names is not None:
        sources["format.label_names"] = list(format.label_names)
    if format.label_names_file is not None:
        sources[str(format.label_names_file)] = _read_names(format.label_names_file)
    if NAMES_KEY in first_row:
        sources[where] = first_row[NAMES_KEY]
    if len(sources) > 1:
        places = " and in ".join("this row" if source == where else source for source in sources)
        raise DomainbertError(f"label names in {places}", where=where, expected="them in only one of these places")
    return next((_check_names(found, source) for source, found in sources.items()), None)  # of the only source


def refuse_other_names(row: Mapping[str, Any], first_row: Mapping[str, Any]) -> None:
    """Raise `DomainbertError` if a JSONL row has label names that differ from the first row's."""
    if NAMES_KEY in row and (names := row[NAMES_KEY]) != first_row.get(NAMES_KEY):
        expected = reprlib.repr(first_row[NAMES_KEY]) if NAMES_KEY in first_row else "no such key"
        raise DomainbertError(f"{NAMES_KEY!r} is {reprlib.repr(names)}", expected=f"{expected}, as in the first row")


def _check_names(names: Any, source: str) -> list[str]:
    if not isinstance(names, list) or not names:
        found = "empty" if names in (None, [], {}) else shown(names)
        raise DomainbertError(f"the label names are {found}", where=source, expected=_EXPECTED)
    for name in names:
        if not isinstance(name, str) or not is_visible(name):
            raise DomainbertError(
                where=source, found=f"label name {shown(name)}", expected="a string of visible characters"
            )
    if duplicates := sorted(name for name, count in Counter(names).items() if count > 1):
        raise DomainbertError(
            f"duplicate label names {format_names(duplicates)}", where=source, expected="different names"
        )
    return names


def _read_names(path: Path) -> Any:
    """Return the list in a file of `[name]`, `{"0": name}`, `{name: 0}`, or `{"id2label": ...}`; another JSON value is
    returned unchanged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DomainbertError(f"cannot be read as JSON ({error})", file=path, expected=_EXPECTED) from error
    if isinstance(value, dict):
        value = value.get("id2label", value)
    if not isinstance(value, dict):
        return value
    name_of: dict[Any, Any]
    if all(key.isdecimal() and len(key) < TOO_MANY_DIGITS for key in value):  # {"0": name}
        name_of = {int(key): name for key, name in value.items()}
    else:  # {name: 0}
        if wrong := [number for number in value.values() if not is_whole_number(number)]:
            raise DomainbertError(file=path, found=f"{shown(wrong[0])} as the index of a label", expected=_EXPECTED)
        name_of = {number: name for name, number in value.items()}
    if set(name_of) != set(range(len(value))):
        raise DomainbertError(f"the labels are not numbered from 0 to {len(value) - 1}", file=path, expected=_EXPECTED)
    return [name_of[index] for index in range(len(value))]


class LabelReader:
    """Reads labels under a key: with `names`, names or their numbers from 0; without, either strings or numbers.

    Call `problem_with` for each row, in file order, and `name` for its label.
    """

    def __init__(self, key: str, names: Sequence[str] | None) -> None:
        self.key, self.names = key, names
        # whether a name is also the number of another label: of the names "1" to "5", "1" is label 0, but 1 is "2"
        self._is_ambiguous = any(self._index(name) not in (None, index) for index, name in enumerate(names or ()))
        self._first: tuple[bool, int] | None = None  # whether the first label is a number, and its line
        self.nameless = False  # whether the labels are numbers without names

    def problem_with(self, row: Row, line: int) -> DomainbertError | None:
        """Return the error if the label of a row is missing or invalid.

        Without `names`, the first label decides whether all labels are strings or numbers.
        """
        value: Any = row.get(self.key)
        is_number = is_whole_number(value)
        if not is_number:
            option, expected = "format.label_key", "a string or whole number"
            if error := problem_with_text(row, self.key, option=option, expected=expected):
                return error
            if not is_visible(value):
                return wrong_value(row, self.key, "visible characters and no white space around them")
            if parse_list(value) is not None:
                found = f"{self.key!r} is {shown(value)}, a list"
                return DomainbertError(found, expected="one label (the task MultiLabel reads lists)")
        if self.names is not None:
            return self._problem_with_known_names(value)
        if self._first is None:
            self._first, self.nameless = (is_number, line), is_number
        first_is_number, first_line = self._first
        if is_number != first_is_number:
            actual, expected = ("a number", "a string") if is_number else ("a string", "a number")
            found = f"{self.key!r} is {shown(value)}, {actual}"
            return DomainbertError(found, expected=f"{expected} as in line {first_line}")
        return wrong_value(row, self.key, "a number from 0") if is_number and value < 0 else None

    def _problem_with_known_names(self, value: Any) -> DomainbertError | None:
        names = format_names(self.names or ())
        if value not in (self.names or ()) and self._index(value) is None:
            expected = f"one of the label_names {names}, or its index from 0"
            return DomainbertError(f"unknown label {shown(value)}", expected=expected)
        if self._is_ambiguous and not is_whole_number(value):
            problem = f"label {shown(value)} may be a name or an index from 0, because label_names are {names}"
            expected = "label_names that are not numbers, or no label_names if the labels are names"
            return DomainbertError(problem, expected=expected)
        return None

    def name(self, value: Any) -> str:
        """Return the name of a valid label; the number as text if the labels are numbers without names."""
        if self.names is None or value in self.names:
            return str(value)
        index = self._index(value)
        return str(value) if index is None else self.names[index]

    def _index(self, value: Any) -> int | None:
        digits = str(value)
        index = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < TOO_MANY_DIGITS else -1
        return index if 0 <= index < len(self.names or ()) else None
