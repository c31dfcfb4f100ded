"""Names of numeric labels, as in data sets of the Hugging Face hub."""

from __future__ import annotations

import ast
import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, format_names
from domainbert.labelled.row_values import Row, is_whole_number, problem_with_text, shown

NAMES_KEY = "label_names"
"""Key of the list of label names in the first row of a JSONL file."""

_STRING = r"""'(?:[^'\\]|\\[\\'"nrtuUx])*'|"(?:[^"\\]|\\[\\'"nrtuUx])*\""""
_ITEM = rf"(?:{_STRING}|-?[0-9]{{1,9}}(?:\.0)?)"
_LIST = re.compile(rf"\[\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*)?\s*\]")
_WHOLE = re.compile(r"-?[0-9]{1,9}\.0")
_DIGITS = 10  # a label number is shorter; Python refuses to parse thousands of digits
_EXPECTED = 'expected a list of names, or an object such as {"0": "O", "1": "B-gene"}'


def is_visible(label: str) -> bool:
    r"""Whether a label has no surrounding white space and no invisible characters.

    >>> [is_visible(label) for label in ("time period", "up ", "u\u200bp", "")]
    [True, False, False, False]
    """
    return bool(label) and label == label.strip() and label.isprintable()


def list_in(text: str) -> list[Any] | None:
    """Parse a list of strings and numbers that pandas wrote into a CSV column; None if the text is not a list.

    >>> [list_in(text) for text in ("['trade', \"women's work\"]", "[]", "['a' 'b']", "trade")]
    [['trade', "women's work"], [], None, None]
    """
    try:
        return list(ast.literal_eval(text.strip())) if _LIST.fullmatch(text.strip()) else None
    except (ValueError, SyntaxError):  # a number such as 01, an incomplete escape
        return None


def to_integer(value: Any, is_column: bool) -> Any:
    """Convert 1.0 to 1 and, in columns, "1.0" to "1": pandas writes whole numbers as floats if the table has missing
    labels. Other values are returned unchanged."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 10**_DIGITS:
        return int(value)
    return value[:-2] if is_column and isinstance(value, str) and _WHOLE.fullmatch(value) else value


def label_index(value: Any, names: Sequence[str]) -> int | None:
    """Parse the number of a label, as an integer or digits; None if `names` has no such index."""
    digits = str(value)
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < _DIGITS else -1
    return number if 0 <= number < len(names) else None


def label_names(
    given: Sequence[str] | None, beside: Path | None, first: Mapping[str, Any], where: str
) -> list[str] | None:
    """Resolve the names of the labels 0, 1, ... from settings, a file or the first row; None without names.

    `where` locates the first row in messages. Raise `DomainbertError` if several sources have names, or the names are
    not distinct visible strings.
    """

    sources: dict[str, Any] = {}
    if given is not None:
        sources["label_names"] = list(given)
    if beside is not None:
        sources[str(beside)] = _read(beside)
    if NAMES_KEY in first:
        sources[where] = first[NAMES_KEY]
    if len(sources) > 1:
        raise DomainbertError(f"{where}: names of labels in {' and in '.join(sources)}; expected one of them")
    return next((_checked(names, source) for source, names in sources.items()), None)


def refuse_other_names(row: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Raise `DomainbertError` if a JSONL row has label names that differ from the first row's."""
    if NAMES_KEY in row and row[NAMES_KEY] != first.get(NAMES_KEY):
        expected = reprlib.repr(first[NAMES_KEY]) if NAMES_KEY in first else "none"
        value = reprlib.repr(row[NAMES_KEY])
        raise DomainbertError(f"{NAMES_KEY!r} is {value}; expected the same in all rows, and the first has {expected}")


def _checked(names: Any, source: str) -> list[str]:
    if not isinstance(names, list) or not names:
        raise DomainbertError(f"{source}: the names of labels are {shown(names)}; {_EXPECTED}")
    for name in names:
        if not isinstance(name, str) or not is_visible(name):
            raise DomainbertError(f"{source}: found {shown(name)} in the label names; expected visible strings")
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise DomainbertError(f"{source}: duplicate label names {format_names(duplicates)}; expected different names")
    return names


def _read(path: Path) -> Any:
    """Read a JSON file with names: a list, `{"0": name}`, `{name: 0}`, or a `config.json` with `id2label`."""
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
    """Reads labels under a key: with `names`, names or their numbers from 0; without, either strings or numbers."""

    def __init__(self, key: str, names: Sequence[str] | None) -> None:
        self.key, self.names = key, names
        parsed = [(number, self._number(name)) for number, name in enumerate(names or ())]
        # 1 to 5 stars: "1" is the name of label 0 and the number of the label "2"
        self._ambiguous = any(other is not None and other != number for number, other in parsed)
        self._first: tuple[bool, int] | None = None  # whether the first label is a number, and its line

    @property
    def nameless(self) -> bool:
        """Whether the classes are numbers without names."""
        return self.names is None and self._first is not None and self._first[0]

    def problem_with(self, row: Row, line: int) -> str:
        """Reason why the row has no valid label; empty if it has one."""
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
            valid = value in self.names or self._number(value) is not None
            if self._ambiguous and not numbered and valid:
                names = format_names(self.names)
                problem = f"label {shown(value)} may be a name or a number from 0, because the names are {names}"
                return f"{problem}; expected names that are not numbers from 0, or no label_names if labels are names"
            return (
                ""
                if valid
                else f"label {shown(value)}; expected one of {format_names(self.names)}, or its number from 0"
            )
        self._first = self._first or (numbered, line)
        if numbered != self._first[0]:
            actual, expected = ("a number", "a string") if numbered else ("a string", "a number")
            return f"{self.key!r} is {shown(value)}, {actual}; expected {expected} as in line {self._first[1]}"
        return f"{self.key!r} is {shown(value)}; expected a number from 0" if numbered and int(str(value)) < 0 else ""

    def name(self, value: Any) -> str:
        """Name of a valid label."""

        number = None if self.names is None or value in self.names else self._number(value)
        return str(value) if self.names is None or number is None else self.names[number]

    def _number(self, value: Any) -> int | None:
        return label_index(value, self.names or ())
