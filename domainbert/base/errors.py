"""Errors that a user can fix: one clear sentence each; the command line exits with code 2."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:  # in `typing` from Python 3.11 on
    from typing_extensions import Self, Unpack

_MAX_EXAMPLES = 3  # per group of similar problems
_MAX_GROUPS = 20
_MAX_NAMES = 10  # of columns, keys or labels in a message
_LOCATION = re.compile(r"(.+?):([1-9]\d*)(?:: (.+))?", re.DOTALL)
_FILE_LINE_MESSAGE = re.compile(r"(.*?):\d+: (.*)", re.DOTALL)
# parts of a message that differ between similar problems: quoted values, entity tags, numbers
_VARIES = re.compile(r"(?P<quote>['\"]).*?(?P=quote)|\b[BIESLU]-\S+|\d+")


NO_TASK_HEAD, FINETUNED = "no trained task head", "a model that finetune wrote"
HALF_SURROGATE, UNICODE = "contains half a surrogate pair", "valid Unicode"


class Advice(TypedDict, total=False):
    """The facts of a `DomainbertError` that help."""

    expected: object
    hint: object


class Facts(Advice, total=False):
    """What a `DomainbertError` states besides its problem; an empty text is no fact."""

    file: object
    line: int | None
    where: object
    found: object


class DomainbertError(Exception):
    """The input or the configuration is wrong; the message says what, where, and what was expected.

    The message is `FILE:LINE: WHERE: PROBLEM; expected EXPECTED; HINT` with the facts that are given; "found FOUND"
    stands in place of a problem.

    Args:
        problem: what is wrong, if it is not a value.
        errors: the errors that this error summarises.
        file: the file with the error.
        line: its line, from 1.
        where: key of the setting or part of the input that is wrong; `path:line: key` stands for all three.
        found: the wrong value.
        expected: what is valid.
        hint: what the user can do.

    >>> from domainbert import DomainbertError, Source
    >>> try:
    ...     Source("")
    ... except DomainbertError as error:
    ...     print(error)
    path: found ''; expected a file, folder, glob or hub:NAME
    >>> error = DomainbertError(where="max_length", found=0, expected="a positive number")
    >>> print(error.within("finetune", file="recipe.yaml", line=3))
    recipe.yaml:3: finetune: max_length: found 0; expected a positive number
    """

    def __init__(
        self,
        problem: object = "",
        errors: Sequence[DomainbertError] = (),
        *,
        file: object = "",
        line: int | None = None,
        where: object = "",
        found: object = "",
        expected: object = "",
        hint: object = "",
    ) -> None:
        self.context = ""  # of an error that was raised again: places around `file`
        self.also: tuple[str, ...] = ()  # further places, at the end of the message
        if not file and (match := _LOCATION.fullmatch(str(where))):
            file, line, where = match[1], int(match[2]), match[3] or ""
        self.file, self.line, self.where = str(file), line, str(where)
        self.problem, self.found, self.expected, self.hint = str(problem), str(found), str(expected), str(hint)
        self._errors = list(errors)
        super().__init__(str(self))  # an error is pickled with its first argument

    def __str__(self) -> str:
        file = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(filter(None, (self.context, file, self.text)))

    @property
    def text(self) -> str:
        """The message without the file and the places around it."""
        subject = ": ".join(filter(None, (self.where, f"found {self.found}" if self.found else self.problem)))
        text = "; ".join(filter(None, (subject, self.expected and f"expected {self.expected}", self.hint)))
        return " ".join((text, *(f"({place})" for place in self.also)))

    @property
    def errors(self) -> list[DomainbertError]:
        """The errors that this error summarises; only itself if it is a single error."""
        return self._errors or [self]

    @property
    def problems(self) -> list[str]:
        """The messages of `errors`."""
        return list(map(str, self.errors))

    def facts(self) -> dict[str, Any]:
        """Return the message and the facts that are given as JSON values, and the facts of each of several errors."""
        names = ("context", "file", "line", "where", "problem", "found", "expected", "hint", "also")
        facts: dict[str, Any] = {name: value for name in names if (value := getattr(self, name))}
        if self._errors:
            facts = {"errors": [error.facts() for error in self._errors]}
        return {"message": str(self), **facts}

    def within(self, where: object = "", *, file: object = "", line: int | None = None) -> Self:
        """Return the error with the place around it: `file`, and a key or part that contains `self.where`."""
        outer = DomainbertError(file=file, line=line, where=where)
        if self.file or self.context:
            facts: dict[str, object] = {"context": ": ".join(filter(None, (str(outer), self.context)))}
        else:
            facts = {"file": outer.file, "line": outer.line}
            facts["where"] = ": ".join(filter(None, (outer.where, self.where)))
        return self._with(facts, [error.within(where, file=file, line=line) for error in self._errors])

    def at(self, where: str) -> Self:
        """Return the error with another `where`."""
        return self._with({"where": where}, self._errors)

    def also_at(self, *places: str) -> Self:
        """Return the error with these further places in parentheses, such as the setting that names `file`."""
        return self._with({"also": places}, self._errors)

    def _with(self, facts: Mapping[str, Any], errors: list[DomainbertError]) -> Self:
        copy = type(self).__new__(type(self))  # a subclass may have other arguments
        copy.__dict__.update(self.__dict__, **facts, _errors=errors)
        copy.args = (str(copy),)
        return copy


class Problems:
    """Collects the problems of a file or setting, so that a user sees all of them at once.

    `add` raises them as soon as there are `limit` problems.

    >>> problems = Problems("train.conll")
    >>> problems.add("3 columns", file="train.conll", line=7, expected="4 as in line 1")
    >>> problems.raise_if_any()
    Traceback (most recent call last):
    domainbert.base.errors.DomainbertError: train.conll:7: 3 columns; expected 4 as in line 1
    """

    def __init__(self, subject: str, limit: int | None = None) -> None:
        self.subject, self.limit = subject, limit
        self.errors: list[DomainbertError] = []

    @property
    def messages(self) -> list[str]:
        """The messages of `errors`."""
        return list(map(str, self.errors))

    def add(self, problem: object = "", **facts: Unpack[Facts]) -> None:
        """Add an error, or one of these facts; raise all as one `DomainbertError` if it is number `limit`."""
        self.errors.append(problem if isinstance(problem, DomainbertError) else DomainbertError(problem, **facts))
        if len(self.errors) == self.limit:
            self.subject += ", stopped reading"
            self.raise_if_any()

    @contextmanager
    def collecting(self, where: str = "", *, file: object = "", line: int | None = None) -> Iterator[None]:
        """Add the errors of a `DomainbertError` raised in the `with` block, each `within` this place, and go on."""
        try:
            yield
        except DomainbertError as error:
            for part in error.errors:
                self.add(part.within(where, file=file, line=line))

    def raise_if_any(self) -> None:
        """Raise one `DomainbertError` with the number of problems and the first ones of each kind, if there are any."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            head = f"{self.subject}: {len(self.errors):,} problems"
            raise DomainbertError("\n  ".join([head, *_summary(self.messages)]), self.errors)


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
        raise DomainbertError(where=", ".join(settings), found=found, expected="exactly one of the two")


def needs_package(packages: str, extra: str) -> DomainbertError:
    """Return the error that optional packages are not installed, with the command that installs them."""
    return DomainbertError(f"needs {packages}", hint=f"run pip install 'domainbert[{extra}]'")


def suggest_name(name: str, expected: Collection[str], note: str = "", none: str = "") -> Advice:
    """Return the advice of an error on an unknown `name`: the hint `did you mean 'x'?` with the expected names
    that begin with `name-` or are similar; without any, the list of all expected names. `note` ends the text; `none` is
    the hint if no name is expected."""
    matches = [word for word in expected if word.startswith(f"{name}-") or word.casefold() == name.casefold()]
    if matches := matches or get_close_matches(name, list(expected), n=1, cutoff=0.6):
        return {"hint": f"did you mean {' or '.join(map(repr, matches))}?{note}"}
    if none and not expected:
        return {"hint": none}
    some = "one of " if len(expected) > 1 else ""
    return {"expected": f"{some}{', '.join(expected) or 'no key here'}{note}"}
