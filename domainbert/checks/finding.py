"""Findings of a check: rules, their findings, the places in files, and `check.json`. Free of anything heavy.

A rule is a function of a subject (a labelled set, two of them, a corpus, ...) with `@rule(...)` above it, and stands in
the list of its subject. Its name is the function's; its docstring says what it means and, after a blank line, what to
do.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from domainbert.base.files import write_json
from domainbert.base.layout import printable

Severity = Literal["error", "warning"]
Subject = TypeVar("Subject")

REPORT = "check.json"
MOST_PLACES = 20
"""Places of a finding that are kept; its count is of all."""

_MOST_CHARACTERS = 200  # of the text of a place
_SHOWN_PLACES = 3
_WIDTH = 160  # characters of a place in a terminal
_KINDS = ("error", "warning", "ignored")


@dataclass(frozen=True)
class Place:
    """A place where something was found."""

    path: str
    line: int | None
    """The line of the file, from 1; None where it is in no line."""
    text: str
    """The text that stands there, shortened by `place`."""

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.text}" if self.text else where


def place(path: Path | str, line: int | None, text: str) -> Place:
    """A place with at most 200 characters of its text, in one line; white space becomes single blanks."""
    return problem_place(path, line, " ".join(text[: 4 * _MOST_CHARACTERS].split()))


def problem_place(path: Path | str, line: int | None, problem: str) -> Place:
    """A place with a message in place of its text, whose blanks stay: it may quote a value that is wrong by them."""
    short = printable(problem[: 4 * _MOST_CHARACTERS])
    return Place(str(path), line, short if len(short) <= _MOST_CHARACTERS else f"{short[: _MOST_CHARACTERS - 3]}...")


@dataclass(frozen=True)
class Finding:
    """One finding of a rule."""

    rule: str
    severity: Severity
    message: str
    """One sentence."""
    count: int
    """Number of cases, in the unit that the message names."""
    threshold: float | None
    """The limit that had to be passed; None where a single case is."""
    places: Sequence[Place]
    """The first of them."""
    ignored: str | None = None
    """The reason why it does not count, as the user said."""

    @property
    def is_error(self) -> bool:
        """Whether it stops a run."""
        return self.severity == "error" and self.ignored is None


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """A rule: what it is called, how bad what it finds is, and how it looks."""

    name: str
    severity: Severity
    threshold: float | None
    meaning: str
    advice: str
    look: Callable[[Subject, Rule[Subject]], Iterable[Finding]]

    def __call__(self, subject: Subject) -> Iterator[Finding]:
        """The findings in a subject."""
        yield from self.look(subject, self)

    @property
    def limit(self) -> float:
        """The threshold of a rule that has one."""
        assert self.threshold is not None
        return self.threshold

    def finding(self, message: str, places: Iterable[Place] = (), count: int | None = None) -> Finding:
        """A finding of the rule; the count is the number of places unless it is given."""
        found = list(places)
        number = len(found) if count is None else count
        return Finding(self.name, self.severity, printable(message), number, self.threshold, found[:MOST_PLACES])


Look = Callable[[Subject, "Rule[Subject]"], Iterable[Finding]]


def rule(severity: Severity, threshold: float | None = None) -> Callable[[Look[Subject]], Rule[Subject]]:
    """Make a rule of a function `look(subject, rule)` that yields findings."""

    def made(look: Look[Subject]) -> Rule[Subject]:
        meaning, _, advice = inspect.cleandoc(look.__doc__ or "").partition("\n\n")
        name = look.__name__.replace("_", "-")
        return Rule(name, severity, threshold, " ".join(meaning.split()), " ".join(advice.split()), look)

    return made


def with_thresholds(rules: Iterable[Rule[Subject]], thresholds: Mapping[str, float]) -> list[Rule[Subject]]:
    """The rules with thresholds of the user's in the place of theirs."""
    return [replace(one, threshold=thresholds.get(one.name, one.threshold)) for one in rules]


def with_reasons(findings: Iterable[Finding], ignore: Mapping[str, str]) -> list[Finding]:
    """Findings, errors first and ignored ones last, with the reasons why some do not count."""
    found = [replace(one, ignored=ignore.get(one.rule)) for one in findings]
    return sorted(found, key=lambda one: (one.ignored is not None, one.severity))


def listed(findings: Sequence[Finding], title: str) -> str:
    """Findings for a terminal: how many there are, then each with its count, sentence and first places."""
    counts = Counter("ignored" if one.ignored is not None else one.severity for one in findings)
    plural = {kind: "" if kind == "ignored" or counts[kind] == 1 else "s" for kind in _KINDS}
    kinds = [f"{counts[kind]:,} {kind}{plural[kind]}" for kind in _KINDS if counts[kind]]
    lines = [f"{title}: {', '.join(kinds) or 'nothing found'}"]
    for one in findings:
        ignored = "" if one.ignored is None else f" (ignored: {printable(one.ignored)})"
        lines += ["", f"{one.severity}  {one.rule}{ignored}", f"  {one.message}"]
        lines += [f"    {str(spot)[:_WIDTH]}" for spot in one.places[:_SHOWN_PLACES] if one.ignored is None]
        more = one.count - min(_SHOWN_PLACES, len(one.places))
        if one.places and more > 0 and one.ignored is None:
            lines.append(f"    ... and {more:,} more")
    return "\n".join(lines)


def write_report(
    path: Path, findings: Sequence[Finding], data: Mapping[str, Any], fit: Mapping[str, Any] | None
) -> None:
    """Write `check.json`: findings, facts of each corpus and labelled set, and how they fit."""
    write_json(path, {"findings": [asdict(one) for one in findings], "data": dict(data), "fit": fit})
