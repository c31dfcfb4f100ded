"""Validates values of rows of labelled files, and formats them for messages."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from domainbert.base.errors import HALF_SURROGATE, UNICODE, DomainbertError, Problems, format_names
from domainbert.corpus.rows import Row

Parsed = TypeVar("Parsed")
RawRow = TypeVar("RawRow")

TOO_MANY_DIGITS = 10  # a label number is shorter; Python refuses to parse thousands of digits
_STRING = r"""'(?:[^'\\]|\\[\\'"nrtuUx])*'|"(?:[^"\\]|\\[\\'"nrtuUx])*\""""
_ITEM = rf"(?:{_STRING}|-?[0-9]{{1,9}}(?:\.0)?)"
_LIST = re.compile(rf"\[\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*)?\s*\]")
_WHOLE = re.compile(r"-?[0-9]{1,9}\.0")


def shown(value: object) -> str:
    """Return a JSON value as text for a message: only the type of a list or object, which may be too deeply nested."""
    if isinstance(value, (dict, list)):
        return f"a JSON {type(value).__name__}"
    return json.dumps(value, default=lambda value: f"a {type(value).__name__}")[:40]


def is_whole_number(value: object) -> bool:
    """Whether a JSON value is an integer; false for `true`."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_visible(label: str) -> bool:
    r"""Whether a label has no surrounding white space and no invisible characters.

    >>> [is_visible(label) for label in ("time period", "up ", "u\u200bp", "")]
    [True, False, False, False]
    """
    return bool(label) and label == label.strip() and label.isprintable()


def is_unicode(text: str) -> bool:
    """Whether a text is valid Unicode: JSON may contain half a surrogate pair, which tokenizers and files reject."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def parse_list(text: str) -> list[Any] | None:
    r"""Return the list of strings and numbers that pandas wrote into a CSV column; None if the text is not a list.

    >>> [parse_list(text) for text in ("['trade', \"women's work\"]", "[]", "['a' 'b']", "trade")]
    [['trade', "women's work"], [], None, None]
    """
    try:
        return list(ast.literal_eval(text.strip())) if _LIST.fullmatch(text.strip()) else None
    except (ValueError, SyntaxError):  # a number such as 01, an incomplete escape
        return None


def to_integer(value: Any, is_column: bool) -> Any:
    """Return 1.0 as 1 and, in columns of CSV (`is_column`), "1.0" as "1"; return other values unchanged.

    Pandas writes whole numbers as floats if the table has missing labels.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 10**TOO_MANY_DIGITS:
        return int(value)
    return value[:-2] if is_column and isinstance(value, str) and _WHOLE.fullmatch(value) else value


def wrong_value(row: Row, key: str, expected: str, option: str = "") -> DomainbertError:
    """Return the error that `row[key]` is missing, or not as expected. The option `option` has the key."""
    if key not in row:
        return DomainbertError(f"no key {key!r}; found {format_names(row)}{option and f' (set {option})'}")
    return DomainbertError(f"{key!r} is {shown(row[key])}", expected=expected)


def problem_with_text(
    row: Row, key: str, may_be_empty: bool = False, option: str = "", expected: str = "a string"
) -> DomainbertError | None:
    """Return the error if `row[key]` is not a non-empty string. The option `option` has the key."""
    value = row.get(key)
    if not isinstance(value, str):
        return wrong_value(row, key, expected, option)
    if not value.strip() and not may_be_empty:
        return DomainbertError(f"{key!r} is empty", expected="a non-empty string")
    return None if is_unicode(value) else DomainbertError(f"{key!r} {HALF_SURROGATE}", expected=UNICODE)


def problem_with_list(row: Row, key: str, option: str = "", expected: str = "a list") -> DomainbertError | None:
    """Return the error if `row[key]` is not a list. The option `option` has the key."""
    return None if isinstance(row.get(key), list) else wrong_value(row, key, expected, option)


def problem_with_strings(row: Row, key: str) -> DomainbertError | None:
    """Return the error if `row[key]` is not a list of non-empty strings."""
    if problem := problem_with_list(row, key, expected="a list of strings"):
        return problem
    for item in row[key]:
        if not (isinstance(item, str) and item and is_unicode(item)):
            expected = "only non-empty strings of valid Unicode"
            return DomainbertError(f"{key!r} contains {shown(item)}", expected=expected)
    return None


def raise_problems(*errors: DomainbertError | None) -> None:
    """Raise one `DomainbertError` for all errors about a row; do nothing without any."""
    problems = Problems("row")
    problems.errors.extend(filter(None, errors))
    problems.raise_if_any()


def parse_rows(
    rows: Iterable[tuple[int, RawRow]], problems: Problems, parse: Callable[[RawRow, int], Parsed]
) -> list[Parsed]:
    """Return the results of `parse(row, line)` for the valid rows; the `DomainbertError` of an invalid row is added to
    `problems`, with path and line."""
    results = []
    for line, row in rows:
        with problems.collecting(file=problems.subject, line=line):
            results.append(parse(row, line))
    return results
