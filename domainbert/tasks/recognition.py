"""Recognition of the task of a labelled file from its first rows."""

from __future__ import annotations

import json

from domainbert.base.choices import choices_of, concrete_subclasses, find_choice
from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.labelled.file_sample import Sample
from domainbert.tasks.config import DetectedTask, TaskConfig

_SHOWN_LENGTH = 40  # characters of a value in messages


def detect_task(sample: Sample, task: str | None = None) -> DetectedTask:
    """Return the most specific task that matches a file, or the match of the task with this name.

    Raises:
        DomainbertError: no task matches; the two most specific tasks are equal; the named task does not match.
    """
    task_classes = _task_classes(task)
    matches, problems = [], Problems(str(sample.path))
    for task_class in task_classes:
        try:
            detector = task_class.format_detector
            if detector and (detected := detector.detect(task_class, sample)) is not None:
                matches.append(detected)
        except DomainbertError as error:
            problems.errors += [part for part in error.errors if str(part) not in problems.messages]
    if not matches:
        problems.raise_if_any()
        names = [task_class.__name__ for task_class in task_classes]
        raise DomainbertError(
            f"does not look like a labelled file of {', '.join(names)}",
            file=sample.path,
            expected="a format of docs/reference/labelled-files.md (--text_key and --label_key set other "
            f"keys){_first_row(sample)}",
        )
    matches.sort(key=lambda match: -match.specificity)
    best = matches[0]
    names = [type(match.task).__name__ for match in matches]
    if len(matches) > 1 and matches[1].specificity == best.specificity:
        reasons = f"{names[0]}: {best.reason}; {names[1]}: {matches[1].reason}"
        found = f"may be for {names[0]} or {names[1]} ({reasons})"
        raise DomainbertError(found, file=sample.path, expected=f"--task {names[0]} or --task {names[1]}")
    return DetectedTask(best.task, best.reason, best.specificity, tuple(names[1:]))


def _first_row(sample: Sample) -> str:
    """Return a description for a message; "" without rows."""
    if not sample.rows:
        return ""
    values = [
        f"{key}: {json.dumps(value, ensure_ascii=False)[:_SHOWN_LENGTH]}" for key, value in sample.rows[0].items()
    ]
    return f"; its first row has {', '.join(values)}"


def _task_classes(name: str | None) -> list[type[TaskConfig]]:
    choices = list(choices_of(TaskConfig))  # imports the built-in tasks
    if name is None:
        return sorted(concrete_subclasses(TaskConfig), key=lambda task_class: task_class.__name__)
    if (task_class := find_choice(TaskConfig, name)) is None:
        raise DomainbertError(f"no task {name!r}", where="--task", **suggest_name(name, choices))
    return [task_class]
