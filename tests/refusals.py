"""Tests of errors assert facts, so that sentences can be rewritten; `tests/test_messages.py` has some sentences."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any

import pytest

from domainbert.base.errors import DomainbertError
from domainbert.cli import main


def assert_facts(errors: Iterable[Mapping[str, Any]], wanted: Mapping[str, object]) -> None:
    """Assert that one of the errors has these facts.

    `where` may be the end of a longer key, `file` of a longer path; "..." matches any text. `problem` may also be
    "found VALUE", and `expected` the hint of an error without it.
    """
    errors = list(errors)
    assert any(_has_facts(error, wanted) for error in errors), f"expected {wanted}; found {errors}"


def _has_facts(error: Mapping[str, Any], wanted: Mapping[str, object]) -> bool:
    for name, text in wanted.items():
        value, pattern = error.get(name, ""), ".*".join(map(re.escape, str(text).split("...")))
        if name == "problem" and "found" in error:
            value = f"found {error['found']}"
        if name == "expected":
            value = value or error.get("hint", "")
        before = {"where": r"(.*(\.|: |--|/))?", "file": "(.*/)?"}.get(name, "")
        matches = re.fullmatch(before + pattern, str(value), re.DOTALL)
        if matches is None:
            return False
    return True


def fact_rows(errors: Iterable[DomainbertError]) -> list[tuple[str, str, str, str]]:
    """Return the facts of each error as a row: `file:line`, `where`, problem or "found VALUE", expected or hint."""
    rows = []
    for error in errors:
        place = error.file if error.line is None else f"{error.file}:{error.line}"
        problem = f"found {error.found}" if error.found else error.problem
        rows.append((place, error.where, problem, error.expected or error.hint))
    return rows


@contextmanager
def refused(**facts: object) -> Iterator[pytest.ExceptionInfo[DomainbertError]]:
    """Expect a `DomainbertError` that has these facts, or one of whose several errors has them."""
    with pytest.raises(DomainbertError) as caught:
        yield caught
    assert_facts((error.facts() for error in caught.value.errors), facts)


def command_refused(*words: object, **facts: object) -> dict[str, Any]:
    """Run a command, expect exit code 2 and an error that has these facts, or several of which one has them, and return
    all its facts."""
    with redirect_stderr(io.StringIO()) as said:
        assert main([*map(str, words), "--json"]) == 2
    return assert_printed(said.getvalue(), **facts)


def assert_printed(said: str, **facts: object) -> dict[str, Any]:
    """Assert that the last line that a command with --json has printed is an error that has these facts, and return
    all its facts."""
    error: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert_facts(error.get("errors", [error]), facts)
    return error
