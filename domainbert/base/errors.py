"""Errors that a user can fix: one clear sentence each; the command line exits with code 2."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice

_MAX_EXAMPLES = 3  # per group of similar problems
_MAX_GROUPS = 20
_MAX_NAMES = 10  # of columns, keys or labels in a message
_FILE_LINE_MESSAGE = re.compile(r"(.*?):\d+: (.*)", re.DOTALL)
# parts of a message that differ between similar problems: quoted values, entity tags, numbers
_VARIES = re.compile(r"(?P<quote>['\"]).*?(?P=quote)|\b[BIESLU]-\S+|\d+")


NO_TASK_HEAD = "no trained task head; expected a model that finetune wrote"
HALF_SURROGATE = "contains half a surrogate pair; expected valid Unicode"


class DomainbertError(Exception):
    """The input or the configuration is wrong; the message says what, where, and what was expected.

    >>> from domainbert import DomainbertError, Source
    >>> try:
    ...     Source("")
    ... except DomainbertError as error:
    ...     print(error)
    path: found ''; expected a file, folder, glob or hub:NAME
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems) or [message]  # a message may summarise several problems


class Problems:
    """Collects the problems of a file or setting, so that a user sees all of them at once.

    `add` raises them as soon as there are `limit` problems.

    >>> problems = Problems("train.conll")
    >>> problems.add("train.conll:7: 3 columns; expected 4 as in line 1")
    >>> problems.raise_if_any()
    Traceback (most recent call last):
    domainbert.base.errors.DomainbertError: train.conll:7: 3 columns; expected 4 as in line 1
    """

    def __init__(self, subject: str, limit: int | None = None) -> None:
        self.subject, self.limit = subject, limit
        self.messages: list[str] = []

    def add(self, message: str) -> None:
        """Add one problem; raise all problems as one `DomainbertError` if it is number `limit`."""
        self.messages.append(message)
        if len(self.messages) == self.limit:
            self.subject += ", stopped reading"
            self.raise_if_any()

    @contextmanager
    def collecting(self, prefix: str = "") -> Iterator[None]:
        """Add the problems of a `DomainbertError` raised in the `with` block, each after `prefix`, and go on."""
        try:
            yield
        except DomainbertError as error:
            for problem in error.problems:
                self.add(prefix + problem)

    def raise_if_any(self) -> None:
        """Raise one `DomainbertError` with the number of problems and the first ones of each kind, if there are any."""
        if len(self.messages) == 1:
            raise DomainbertError(self.messages[0])
        if self.messages:
            head = f"{self.subject}: {len(self.messages):,} problems"
            raise DomainbertError("\n  ".join([head, *_summary(self.messages)]), self.messages)


def _summary(messages: Sequence[str]) -> list[str]:
    """Return the first messages of each group of similar messages, and lines with the numbers of omitted messages."""
    groups: dict[tuple[str, str], list[str]] = {}
    for message in messages:
        match = _FILE_LINE_MESSAGE.fullmatch(message)
        group = (match[1], _VARIES.sub("", match[2])) if match else (message, "")
        groups.setdefault(group, []).append(message)
    lines: list[str] = []
    for similar in list(groups.values())[:_MAX_GROUPS]:
        lines += similar[:_MAX_EXAMPLES]
        if len(similar) > _MAX_EXAMPLES:
            lines.append(f"... and {len(similar) - _MAX_EXAMPLES:,} more like this")
    others = sum(map(len, list(groups.values())[_MAX_GROUPS:]))
    return [*lines, f"... and {others:,} more"] if others else lines


def format_names(names: Iterable[str]) -> str:
    """Return the first ten names of columns, keys or labels as "'a', 'b'" for a message, and "..." if there are more;
    "none" without names."""
    some = [reprlib.repr(name) for name in islice(names, _MAX_NAMES + 1)]
    if len(some) > _MAX_NAMES:
        some[-1] = "..."
    return ", ".join(some) or "none"


def counted(count: int, plural: str) -> str:
    """Return a count with its noun, a regular plural: "1 pair of texts" for (1, "pairs of texts"), "1,200 entities"."""
    singular = re.sub(r"(?:(ie)|(?<=ss)e)?s\b", lambda end: "y" if end[1] else "", plural, count=1)
    return f"{count:,} {singular if count == 1 else plural}"


class ErrorsFound(DomainbertError):
    """A stage has finished and found errors in the data, which have to be fixed first: exit code 1."""


class TrainingFailed(DomainbertError):
    """A training failed, or a stream ended early; the files that the stage has written are useful and are kept."""


def divergence_error(problem: str) -> TrainingFailed:
    """Return the error for a training that produced NaN or infinite numbers; `problem` says where."""
    return TrainingFailed(
        f"{problem}, so the training diverged and its model is not saved; try a lower optim.lr or more "
        "schedule.warmup_steps; logs/metrics.jsonl shows where it began"
    )


class TrainingStopped(Exception):
    """A signal ended a stage early; a training has saved its state: exit code 75 ("try again later")."""


def check_one_given(**settings: object) -> None:
    """Raise `DomainbertError` unless exactly one of two settings, passed by name, is not None."""
    given = [name for name, value in settings.items() if value is not None]
    if len(given) != 1:
        found = "both" if given else "neither"
        raise DomainbertError(f"{', '.join(settings)}: found {found}; expected exactly one of the two")


def needs_package(packages: str, extra: str) -> str:
    """Return the problem, for an error message, that optional packages are not installed, and how to install them."""
    return f"needs {packages}; run pip install 'domainbert[{extra}]'"


def suggest_name(name: str, expected: Sequence[str]) -> str:
    """Return a hint for an error message on an unknown `name`: `did you mean 'x'?` with the expected names that begin
    with `name-` or are similar; without any, the list of all expected names."""
    matches = [word for word in expected if word.startswith(f"{name}-") or word.casefold() == name.casefold()]
    if matches := matches or get_close_matches(name, expected, n=1, cutoff=0.6):
        return f"did you mean {' or '.join(map(repr, matches))}?"
    some = "one of " if len(expected) > 1 else ""
    return f"expected {some}{', '.join(expected)}" if expected else "expected no key here"
