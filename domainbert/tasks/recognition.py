"""The task that a labelled file is for, by its beginning: each task says whether a file looks like one of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass

from domainbert.base.choices import choices_of, concrete_subclasses, find_choice
from domainbert.base.errors import DomainbertError, Problems, nearest
from domainbert.labelled.file_sample import Sample
from domainbert.tasks.config import TaskConfig

_SHOWN = 40  # characters of a value


@dataclass(frozen=True)
class Recognised:
    """A task that a file seems to be for."""

    task: TaskConfig
    """With the keys and columns of the file."""

    reason: str
    """The part of the file that says so."""

    specificity: int = 1
    """Measure of how much of the file the task explains; of several tasks the one with most is taken."""

    others: tuple[str, ...] = ()
    """Further tasks that the file may be for, by the names of their classes."""


def recognise(sample: Sample, task: str | None = None) -> Recognised:
    """The task that a file is for, of those that claim it the most specific; or the one of this name.

    Raises:
        DomainbertError: no task claims it, and why; two are equally specific; or the one of this name does not.
    """
    kinds = [_named(task)] if task is not None else _known()
    found, problems = [], Problems(str(sample.path))
    for kind in kinds:
        try:
            if kind.recognising and (recognised := kind.recognising.recognise(kind, sample)) is not None:
                found.append(recognised)
        except DomainbertError as error:
            problems.messages += [problem for problem in error.problems if problem not in problems.messages]
    if not found:
        problems.raise_if_any()
        known = ", ".join(kind.__name__ for kind in kinds)
        raise DomainbertError(
            f"{sample.path}: does not look like a labelled file of {known} "
            f"(docs/reference/labelled-files.md){_first_row(sample)}"
        )
    found.sort(key=lambda one: -one.specificity)
    best, names = found[0], [type(one.task).__name__ for one in found]
    if len(found) > 1 and found[1].specificity == best.specificity:
        claims = "; ".join(f"{name}: {one.reason}" for name, one in list(zip(names, found, strict=True))[:2])
        raise DomainbertError(f"{sample.path}: may be for {names[0]} or {names[1]} ({claims}); expected --task NAME")
    return Recognised(best.task, best.reason, best.specificity, tuple(names[1:]))


def _first_row(sample: Sample) -> str:
    """The first row, for a person, its values cut; empty where there are none."""
    if not sample.rows:
        return ""
    cut = [f"{key}: {json.dumps(value, ensure_ascii=False)[:_SHOWN]}" for key, value in sample.rows[0].items()]
    return f"; its first row has {', '.join(cut)}"


def _named(name: str) -> type[TaskConfig]:
    kind = find_choice(TaskConfig, name)
    if kind is None:
        raise DomainbertError(f"--task: no task {name!r}; {nearest(name, list(choices_of(TaskConfig)))}")
    found: type[TaskConfig] = kind
    return found


def _known() -> list[type[TaskConfig]]:
    choices_of(TaskConfig)  # imports ours
    return sorted(concrete_subclasses(TaskConfig), key=lambda kind: kind.__name__)
