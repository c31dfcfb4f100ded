"""Values of rows of labelled files, checked and shown in messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from domainbert.base.errors import DomainbertError, Problems, listed

Row = dict[str, Any]
"""A row of a labelled file, by key or column."""

Found = TypeVar("Found")
Given = TypeVar("Given")


def shown(value: object) -> str:
    """A JSON value for a message; only the kind of a list or object, which may be too deep for `json` to write."""
    return (
        f"a JSON {type(value).__name__}"
        if isinstance(value, (dict, list))
        else json.dumps(value, default=_type_name)[:40]
    )


def _type_name(value: object) -> str:
    return f"a {type(value).__name__}"


def is_whole_number(value: object) -> bool:
    """Whether a JSON value is an integer; `true` is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_unicode(text: str) -> bool:
    """Whether a text is valid Unicode. JSON can hold half a surrogate pair, which no tokenizer and no file accepts."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def problem_with_text(row: dict[str, Any], key: str, may_be_empty: bool = False) -> str:
    """The reason why `row[key]` is not a filled string; empty if it is one."""
    if key not in row:
        return f"no key {key!r}; found {listed(row)}"
    value = row[key]
    if not isinstance(value, str):
        return f"{key!r} is {shown(value)}; expected a string"
    if not value.strip() and not may_be_empty:
        return f"{key!r} is empty; expected a filled string"
    return "" if is_unicode(value) else f"{key!r} holds half a surrogate pair; expected valid Unicode"


def problem_with_list(row: dict[str, Any], key: str) -> str:
    """The reason why `row[key]` is not a list; empty if it is one."""
    if key not in row:
        return f"no key {key!r}; found {listed(row)}"
    return "" if isinstance(row[key], list) else f"{key!r} is {shown(row[key])}; expected a list"


def problem_with_strings(row: dict[str, Any], key: str) -> str:
    """The reason why `row[key]` is not a list of filled strings; empty if it is one."""
    if problem := problem_with_list(row, key):
        return problem + (" of strings" if key in row else "")
    for item in row[key]:
        if not isinstance(item, str) or not item or not is_unicode(item):
            return f"{key!r} holds {shown(item)}; expected filled strings only"
    return ""


def refuse(*found: str) -> None:
    """Raise `DomainbertError` with all that is wrong with one row, each filled string a problem."""
    problems = Problems("row")
    for problem in filter(None, found):
        problems.add(problem)
    problems.raise_if_any()


def parsed(rows: Iterable[tuple[int, Given]], problems: Problems, parse: Callable[[Given, int], Found]) -> list[Found]:
    """The result of `parse` for each row and line; where it raises `DomainbertError`, that is noted as a problem."""
    found = []
    for line, row in rows:
        try:
            found.append(parse(row, line))
        except DomainbertError as error:
            for problem in error.problems:
                problems.add(f"{problems.subject}:{line}: {problem}")
    return found
