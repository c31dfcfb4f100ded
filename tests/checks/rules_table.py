"""Generates the tables of docs/reference/checks.md from the rules: `python tests/checks/rules_table.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/reference/checks.md"
TABLES = {"labelled": "domainbert.checks.rules:LABELLED_SET_RULES", "corpus": "domainbert.checks.corpus_rules:RULES"}
_PAIR = re.compile(r"-in-(train|validation)-and-(validation|test)$")


def tables() -> dict[str, str]:
    """The tables in Markdown, by the marks between which they stand."""
    places = {name: place.partition(":") for name, place in TABLES.items()}
    return {name: table(getattr(import_module(at), what)) for name, (at, _, what) in places.items() if find_spec(at)}


def table(rules: Iterable[Any]) -> str:
    """A row for each rule; the rules on each two sets are one row."""
    rows: dict[str, list[str]] = {}
    for one in rules:
        threshold = "" if one.threshold is None else f"{one.threshold:g}"
        name = _PAIR.sub("-in-A-and-B", one.name)
        rows.setdefault(name, [f"`{name}`", one.severity, threshold, *texts(one)])
    lines = [["rule", "severity", "threshold", "what it means", "what to do"], ["---"] * 5, *rows.values()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def texts(rule: Any) -> list[str]:
    """What a finding means, and what to do: the paragraphs of the docstring."""
    meaning, _, advice = inspect.cleandoc(rule.search.__doc__).partition("\n\n")
    return [" ".join(text.split()) for text in (meaning, advice)]


def stored(name: str, page: str) -> str:
    """Return the table in the page."""
    return page.partition(f"<!-- {name} -->\n\n")[2].partition("\n<!-- end -->")[0]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for mark, made in tables().items():
        begin, end = f"<!-- {mark} -->\n\n", "\n<!-- end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{made}{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, encoding="utf-8")
