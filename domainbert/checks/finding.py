"""Rules of a check, and their findings with places in files. Imports no heavy library.

A rule is a function with the decorator `@rule(...)`; its argument is the subject (a labelled set, a pair of sets, a
corpus, ...). It is in the list of rules for its subject. The name comes from the function. The docstring does not say
what the function does, but what a finding means ("More than this share ...": than the threshold) and, after a blank
line, what to do; tests/checks/rules_table.py writes it to docs/reference/checks.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Literal, TypeVar

from domainbert.base.layout import printable

Severity = Literal["error", "warning"]
Subject = TypeVar("Subject")

MOST_PLACES = 20
"""Maximum number of places kept per finding; `count` covers all of them."""

_MAX_CHARACTERS = 200  # of the text at a place
_SHOWN_PLACES = 3  # of a finding, in a terminal
_WIDTH = 160  # characters of a place in a terminal
_CONTEXT = 60  # characters shown on each side of a span


@dataclass(frozen=True)
class Place:
    """Place of a problem: a file, a line, and the text there."""

    path: str
    line: int | None
    """Line number, from 1; None when the problem has no line."""
    text: str
    """Text at this place, shortened by `place`."""

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.text}" if self.text else where


def place(path: Path | str, line: int | None, text: str) -> Place:
    """Return a place with at most 200 characters of its text, in one line; white space becomes single spaces."""
    start = text[: 4 * _MAX_CHARACTERS]  # a text may be a whole document
    return problem_place(path, line, " ".join(start.split()))


def problem_place(path: Path | str, line: int | None, problem: str) -> Place:
    """Return a place with at most 200 characters of a message as its text. Keeps white space: the message may quote a
    value with wrong spaces."""
    text = printable(problem[: 4 * _MAX_CHARACTERS])
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[: _MAX_CHARACTERS - 3]}..."
    return Place(str(path), line, text)


def span_with_context(text: str, start: int, end: int) -> str:
    """Return characters `start` to `end` of a text, and up to 60 characters around them: `'Ã©' in: the cafÃ© on`."""
    return f"{text[start:end]!r} in: {text[max(0, start - _CONTEXT) : end + _CONTEXT]}"


@dataclass(frozen=True)
class Finding:
    """A problem that a rule found in a subject, with its places."""

    rule: str
    severity: Severity
    message: str
    """One sentence."""
    count: int
    """Number of cases, such as texts or entities; see the message."""
    threshold: float | None
    """Limit that was exceeded; None when a single case is a finding."""
    places: Sequence[Place]
    """The first places, at most `MOST_PLACES`."""
    ignored: str | None = None
    """Why the user ignores the finding, from the setting `ignore`; None: not ignored."""

    @property
    def is_error(self) -> bool:
        """Whether the finding stops a run."""
        return self.severity == "error" and self.ignored is None


Search = Callable[[Subject, "Rule[Subject]"], Iterable[Finding]]


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """A rule: its name, the severity of its findings, and the function that searches for findings."""

    name: str
    severity: Severity
    threshold: float | None
    search: Search[Subject]

    @property
    def limit(self) -> float:
        """Threshold of the rule; `AssertionError` if the rule has none."""
        assert self.threshold is not None
        return self.threshold

    def finding(self, message: str, places: Iterable[Place] = (), count: int | None = None) -> Finding:
        """Return a finding of this rule; `count` defaults to the number of places."""
        listed = list(places)
        count = len(listed) if count is None else count
        return Finding(self.name, self.severity, printable(message), count, self.threshold, listed[:MOST_PLACES])


def rule(severity: Severity, threshold: float | None = None) -> Callable[[Search[Subject]], Rule[Subject]]:
    """Return a decorator that turns a function `search(subject, rule)`, which yields findings, into a `Rule`."""

    def decorate(search: Search[Subject]) -> Rule[Subject]:
        return Rule(search.__name__.replace("_", "-"), severity, threshold, search)

    return decorate


def apply_rules(rules: Iterable[Rule[Subject]], subject: Subject, thresholds: Mapping[str, float]) -> Iterator[Finding]:
    """Yield the findings of all rules in a subject; `thresholds`, by the name of a rule, override the defaults."""
    for rule in rules:
        threshold = thresholds.get(rule.name, rule.threshold)
        yield from rule.search(subject, replace(rule, threshold=threshold))


def with_reasons(findings: Iterable[Finding], ignore: Mapping[str, str]) -> list[Finding]:
    """Return the findings, errors first, ignored findings last; `ignore` maps ignored rules to the user's reasons."""
    with_ignored = [replace(finding, ignored=ignore.get(finding.rule)) for finding in findings]
    # "error" is before "warning" in the alphabet
    return sorted(with_ignored, key=lambda finding: (finding.ignored is not None, finding.severity))


def format_findings(findings: Sequence[Finding], title: str) -> str:
    """Format findings for a terminal: their number, then each finding with its message and first places."""
    counts = Counter("ignored" if finding.ignored is not None else finding.severity for finding in findings)
    names = {"error": "errors", "warning": "warnings", "ignored": "ignored"}
    totals = [f"{counts[key]:,} {key if counts[key] == 1 else plural}" for key, plural in names.items() if counts[key]]
    advice = " (docs/reference/checks.md says what to do)" if findings else ""
    lines = [f"{title}: {', '.join(totals) or 'nothing found'}{advice}"]
    for finding in findings:
        ignored = "" if finding.ignored is None else f" (ignored: {printable(finding.ignored)})"
        lines += ["", f"{finding.severity}  {finding.rule}{ignored}", f"  {finding.message}"]
        shown_places = finding.places[:_SHOWN_PLACES] if finding.ignored is None else []
        lines += [f"    {str(place)[:_WIDTH]}" for place in shown_places]
        if shown_places and finding.count > len(shown_places):
            lines.append(f"    ... and {finding.count - len(shown_places):,} more")
    return "\n".join(lines)
