"""Names of labels that stand in a file as numbers, as in data sets of the Hugging Face hub."""

from __future__ import annotations

import ast
import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, listed
from domainbert.labelled.row_values import Row, is_whole_number, problem_with_text, shown

NAMES_KEY = "label_names"
"""Key of the list of names in the first row of a JSONL file."""

_STRING = r"""'(?:[^'\\]|\\[\\'"nrtuUx])*'|"(?:[^"\\]|\\[\\'"nrtuUx])*\""""
_ITEM = rf"(?:{_STRING}|-?[0-9]{{1,9}}(?:\.0)?)"
_LIST = re.compile(rf"\[\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*)?\s*\]")
_WHOLE = re.compile(r"-?[0-9]{1,9}\.0")
_DIGITS = 10  # of the number of a label; Python refuses to read thousands
_EXPECTED = 'expected a list of names, or an object such as {"0": "O", "1": "B-gene"}'


def is_visible(label: str) -> bool:
    r"""Whether no white space surrounds a label and none of its characters is invisible, so that equal looks are equal.

    >>> [is_visible(label) for label in ("time period", "up ", "u\u200bp", "")]
    [True, False, False, False]
    """
    return bool(label) and label == label.strip() and label.isprintable()


def list_in(text: str) -> list[Any] | None:
    """The list of strings and numbers that pandas wrote into a column of CSV; None if the text is not a list.

    >>> [list_in(text) for text in ("['trade', \"women's work\"]", "[]", "['a' 'b']", "trade")]
    [['trade', "women's work"], [], None, None]
    """
    try:
        return list(ast.literal_eval(text.strip())) if _LIST.fullmatch(text.strip()) else None
    except (ValueError, SyntaxError):  # a number such as 01, half of an escape
        return None


def as_whole(value: Any, is_column: bool) -> Any:
    """A label that is 1.0 as 1, and "1.0" as "1" if the value is a column: pandas writes whole numbers so where some
    labels of a table are missing. Any other value as it is."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 10**_DIGITS:
        return int(value)
    return value[:-2] if is_column and isinstance(value, str) and _WHOLE.fullmatch(value) else value


def number_of(value: Any, names: Sequence[str]) -> int | None:
    """The number that stands for a name, whole or in the digits of a column of CSV; None where it is none."""
    digits = str(value)
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < _DIGITS else -1
    return number if 0 <= number < len(names) else None


def label_names(
    given: Sequence[str] | None, beside: Path | None, first: Mapping[str, Any], where: str
) -> list[str] | None:
    """The names of the labels 0, 1, ...: those given, in a file beside, or in the first row; None if there are none.

    Names in several places, or that are no distinct visible strings, raise `DomainbertError`; `where` the row stands.
    """
    places: dict[str, Any] = {}
    if given is not None:
        places["label_names"] = list(given)
    if beside is not None:
        places[str(beside)] = _read(beside)
    if NAMES_KEY in first:
        places[where] = first[NAMES_KEY]
    if len(places) > 1:
        raise DomainbertError(f"{where}: names of labels in {' and in '.join(places)}; expected one of them")
    for place, names in places.items():
        return _checked(names, place)
    return None


def refuse_other_names(row: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """`DomainbertError` if a row of JSONL has names of labels, but not those of the first row."""
    if NAMES_KEY in row and row[NAMES_KEY] != first.get(NAMES_KEY):
        own = f"has {reprlib.repr(first[NAMES_KEY])}" if NAMES_KEY in first else "has none"
        found = reprlib.repr(row[NAMES_KEY])
        raise DomainbertError(f"{NAMES_KEY!r} is {found}; expected the same in all rows, and the first {own}")


def _checked(names: Any, place: str) -> list[str]:
    if not isinstance(names, list) or not names:
        raise DomainbertError(f"{place}: the names of labels are {shown(names)}; {_EXPECTED}")
    for name in names:
        if not isinstance(name, str) or not is_visible(name):
            raise DomainbertError(f"{place}: {shown(name)} among the names of labels; expected visible strings")
    if len(set(names)) < len(names):
        raise DomainbertError(f"{place}: a name of a label twice in {listed(names)}; expected different names")
    return names


def _read(path: Path) -> Any:
    """The names in a JSON file: a list, `{"0": name}`, `{name: 0}`, or a `config.json` with its `id2label`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DomainbertError(f"{path}: cannot be read as JSON ({error}); {_EXPECTED}") from error
    if isinstance(value, dict):
        value = value.get("id2label", value)
    if not isinstance(value, dict):
        return value
    numbered: dict[Any, Any]
    if all(key.isdecimal() and len(key) < _DIGITS for key in value):
        numbered = {int(key): name for key, name in value.items()}
    else:
        if wrong := [number for number in value.values() if not is_whole_number(number)]:
            raise DomainbertError(f"{path}: {shown(wrong[0])} as the number of a label; {_EXPECTED}")
        numbered = {number: name for name, number in value.items()}
    if set(numbered) != set(range(len(value))):
        raise DomainbertError(f"{path}: the numbers of the labels are not 0 to {len(value) - 1}; {_EXPECTED}")
    return [numbered[number] for number in range(len(value))]


class LabelReader:
    """Reads labels under a key that are strings or numbers from 0, which stand for `names`; without these not both."""

    def __init__(self, key: str, names: Sequence[str] | None) -> None:
        self.key, self.names = key, names
        numbers = [(number, self._number(name)) for number, name in enumerate(names or ())]
        # 1 to 5 stars: "1" is the name of 0, and the number of "2"
        self._unclear = any(other is not None and other != number for number, other in numbers)
        self._first: tuple[bool, int] | None = None  # whether the first label is a number, and its line

    @property
    def nameless(self) -> bool:
        """The classes are numbers without names."""
        return self.names is None and self._first is not None and self._first[0]

    def problem_with(self, row: Row, line: int) -> str:
        """The reason why the row has no label, or an empty string."""
        value = row.get(self.key)
        numbered = is_whole_number(value)
        if not numbered:
            problem = problem_with_text(row, self.key).replace("expected a string", "expected a string or whole number")
            if problem or not is_visible(str(value)):
                expected = "expected visible characters and no white space around them"
                return problem or f"{self.key!r} is {shown(value)}; {expected}"
            if list_in(str(value)) is not None:
                return f"{self.key!r} is {shown(value)}, a list; expected one label (the task MultiLabel reads lists)"
        if self.names is not None:
            known = value in self.names or self._number(value) is not None
            if self._unclear and not numbered and known:
                found = f"label {shown(value)} may be a name or a number from 0, for the names are {listed(self.names)}"
                return f"{found}; expected names that are no such numbers, or no label_names where the labels are names"
            return "" if known else f"label {shown(value)}; expected one of {listed(self.names)}, or its number from 0"
        self._first = self._first or (numbered, line)
        if numbered != self._first[0]:
            words = [f"a {'number' if one else 'string'}" for one in (numbered, self._first[0])]
            return f"{self.key!r} is {shown(value)}, {words[0]}; expected {words[1]} as in line {self._first[1]}"
        return f"{self.key!r} is {shown(value)}; expected a number from 0" if numbered and int(str(value)) < 0 else ""

    def name(self, value: Any) -> str:
        """The name of a label without a problem."""
        number = None if self.names is None or value in self.names else self._number(value)
        return str(value) if self.names is None or number is None else self.names[number]

    def _number(self, value: Any) -> int | None:
        return number_of(value, self.names or ())
