"""Reads the labelled sets of a check. An unreadable file becomes a finding; the other files are read."""

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
    """A file that cannot be read, with the problems."""

    name: SetName
    file: Single
    problems: Sequence[str]


@rule("error")
def unreadable(file: UnreadFile, rule: Rule[UnreadFile]) -> Iterator[Finding]:
    """A labelled file cannot be read: wrong columns, tags that the scheme forbids, invalid labels or characters,
    stretches outside of the text, ...

    Correct the lines; the other rules skip this file.
    """
    matches = [(_PLACED.fullmatch(problem), problem) for problem in file.problems]
    path, whole = str(file.file), f"{file.file}: "
    places = [
        problem_place(at[1], int(at[2]), at[3]) if at else problem_place(path, None, problem.removeprefix(whole))
        for at, problem in matches
    ]
    problems = "1 problem" if len(places) == 1 else f"{len(places):,} problems"
    yield rule.finding(f"{file.file} ({file.name}) cannot be read: {problems}", places)


RULES = [unreadable]


def read_checked(
    task: TaskConfig,
    name: SetName,
    given: LabelledSet,
    read: Callable[[TaskConfig, LabelledSet], Labelled[Any]] = read_set,
) -> tuple[CheckedSet | None, list[UnreadFile]]:
    """Read the files of a set; return the set of all readable files (None without any) and the unreadable files."""
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
