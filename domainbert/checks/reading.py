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

_LOCATED_PROBLEM = re.compile(r"(.+?):(\d+): (.*)", re.DOTALL)  # path:line: problem


@dataclass(frozen=True)
class UnreadableFile:
    """A labelled file that cannot be read."""

    name: SetName  # of the set with the file
    file: Single
    problems: Sequence[str]  # messages of the errors


@rule("error")
def unreadable(file: UnreadableFile, rule: Rule[UnreadableFile]) -> Iterator[Finding]:
    """A labelled file cannot be read: wrong columns, tags that the scheme forbids, invalid labels or characters,
    stretches outside of the text, ...

    Correct the lines; the other rules skip this file.
    """
    matches = [(_LOCATED_PROBLEM.fullmatch(problem), problem) for problem in file.problems]
    path, prefix = str(file.file), f"{file.file}: "
    places = [
        problem_place(match[1], int(match[2]), match[3])
        if match
        else problem_place(path, None, problem.removeprefix(prefix))
        for match, problem in matches
    ]
    problems = "1 problem" if len(places) == 1 else f"{len(places):,} problems"
    yield rule.finding(f"{file.file} ({file.name}) cannot be read: {problems}", places)


RULES = [unreadable]


def read_checked(
    task: TaskConfig,
    name: SetName,
    labelled_set: LabelledSet,
    read: Callable[[TaskConfig, LabelledSet], Labelled[Any]] = read_set,
) -> tuple[CheckedSet | None, list[UnreadableFile]]:
    """Read the files of a labelled set, one at a time.

    Returns:
        The set of all readable files, or None if there are none; and the unreadable files.
    """
    unreadable_files, readable = [], []
    for file in files_of(labelled_set):
        try:
            labelled = read(task, file)
            readable.append(file)
        except DomainbertError as error:
            unreadable_files.append(UnreadableFile(name, file, error.problems))
    if not readable:
        return None, unreadable_files
    return CheckedSet(name, labelled if len(readable) == 1 else read(task, readable)), unreadable_files
