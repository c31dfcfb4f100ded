"""Reads the labelled sets of a check: what is wrong with a file is a finding, and the other files are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.checks.finding import Finding, Rule, problem_place, rule
from domainbert.checks.labelled_set import CheckedSet, SetName
from domainbert.labelled.items import Labelled
from domainbert.labelled.sets import LabelledSet, Single, files_of, read_set
from domainbert.tasks.config import TaskConfig

_PLACED = re.compile(r"(.+?):(\d+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class UnreadFile:
    """A file that cannot be read, and why."""

    name: SetName
    file: Single
    problems: Sequence[str]


@rule("error")
def unreadable(file: UnreadFile, rule: Rule[UnreadFile]) -> Iterator[Finding]:
    """A labelled file cannot be read: wrong columns, tags that the scheme forbids, labels or characters that are none,
    stretches outside of the text, ...

    Mend the lines; the other rules do not see this file.
    """
    found = [(_PLACED.fullmatch(problem), problem) for problem in file.problems]
    path, whole = str(file.file), f"{file.file}: "
    places = [
        problem_place(at[1], int(at[2]), at[3]) if at else problem_place(path, None, problem.removeprefix(whole))
        for at, problem in found
    ]
    problems = "1 problem" if len(places) == 1 else f"{len(places):,} problems"
    yield rule.finding(f"{file.file}, of {file.name}, has {problems} of reading", places)


RULES = [unreadable]


def read_checked(
    task: TaskConfig,
    name: SetName,
    given: LabelledSet,
    read: Callable[[TaskConfig, LabelledSet], Labelled[Any]] = read_set,
) -> tuple[CheckedSet | None, list[UnreadFile]]:
    """The set of all files that `read` can read, None if there is none, and the unread files."""
    unread, good = [], []
    for file in files_of(given):
        try:
            whole = read(task, file)
            good.append(file)
        except DomainbertError as error:
            unread.append(UnreadFile(name, file, error.problems))
    if not good:
        return None, unread
    return CheckedSet(name, whole if len(good) == 1 else read(task, good)), unread
