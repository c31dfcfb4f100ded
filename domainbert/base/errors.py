"""Errors that a user can fix: one clear sentence each, and exit code 2 on the command line."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

_EXAMPLES = 3  # of each kind of problem
_KINDS = 20
_NAMES = 10  # of columns, keys or labels in a message
_PLACED = re.compile(r"(.*?):\d+: (.*)", re.DOTALL)
# the parts in which problems of one kind differ: what was found, entity tags, numbers
_VARIES = re.compile(r"(?P<quote>['\"]).*?(?P=quote)|\b[BIESLU]-\S+|\d+")


class DomainbertError(Exception):
    """Something in the input or the configuration is wrong; the message says what, where, and what was expected.

    >>> from domainbert import DomainbertError, Source
    >>> try:
    ...     Source("")
    ... except DomainbertError as error:
    ...     print(error)
    path: found ''; expected a file, folder, glob or hub:NAME
    """

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems) or [message]  # where the message holds several


class Problems:
    """Collects the problems of a file or setting, so that a user sees all of them at once.

    With `most` of them they are raised, without reading further.

    >>> problems = Problems("train.conll")
    >>> problems.add("train.conll:7: 3 columns; expected 4 as in line 1")
    >>> problems.raise_if_any()
    Traceback (most recent call last):
    domainbert.base.errors.DomainbertError: train.conll:7: 3 columns; expected 4 as in line 1
    """

    def __init__(self, subject: str, most: int | None = None) -> None:
        self.subject, self.most = subject, most
        self.messages: list[str] = []

    def add(self, message: str) -> None:
        """Remember one problem."""
        self.messages.append(message)
        if len(self.messages) == self.most:
            self.subject += ", read no further"
            self.raise_if_any()

    def raise_if_any(self) -> None:
        """Raise one `DomainbertError` with the first problems of each kind and their number, if there are any."""
        if len(self.messages) == 1:
            raise DomainbertError(self.messages[0])
        if self.messages:
            head = f"{self.subject}: {len(self.messages):,} problems"
            raise DomainbertError("\n  ".join([head, *_in_short(self.messages)]), self.messages)


def _in_short(messages: Sequence[str]) -> list[str]:
    kinds: dict[tuple[str, str], list[str]] = {}
    for message in messages:
        placed = _PLACED.fullmatch(message)
        kind = (placed[1], _VARIES.sub("", placed[2])) if placed else (message, "")
        kinds.setdefault(kind, []).append(message)
    lines: list[str] = []
    for alike in list(kinds.values())[:_KINDS]:
        more = len(alike) - _EXAMPLES
        lines += [*alike[:_EXAMPLES], *([f"... and {more:,} more like this"] if more > 0 else [])]
    others = sum(map(len, list(kinds.values())[_KINDS:]))
    return [*lines, *([f"... and {others:,} more"] if others else [])]


def listed(names: Iterable[str]) -> str:
    """The first few names of columns, keys or labels, for a message."""
    return ", ".join(map(reprlib.repr, islice(names, _NAMES))) or "none"


class ErrorsFound(DomainbertError):
    """A stage has done what it was asked to, and what it found has to be mended first: exit code 1."""


class TrainingFailed(DomainbertError):
    """A training failed, or a stream ended early; what the stage has written is useful, and is kept."""


def diverged(found: str) -> TrainingFailed:
    """The error of a training that finished with numbers that are not finite: where, and which."""
    return TrainingFailed(
        f"{found}: the training diverged, and its model is not saved; expected finite numbers: a lower optim.lr or "
        "more schedule.warmup_steps may help, and logs/metrics.jsonl shows where it began"
    )


class TrainingStopped(Exception):
    """A signal ended a stage early; a training has saved its state: exit code 75 ("try again later")."""


def nearest(name: str, known: Sequence[str]) -> str:
    """`did you mean 'x'?` for the known names that go on from it, or the nearest; else which names there are."""
    meant = [one for one in known if one.startswith(f"{name}-") or one.casefold() == name.casefold()]
    meant = meant or get_close_matches(name, known, n=1, cutoff=0.6)
    if meant:
        return f"did you mean {' or '.join(repr(one) for one in meant)}?"
    return f"expected one of {', '.join(known)}" if known else "expected no key here"
