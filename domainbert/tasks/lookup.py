"""Lookup of tasks by name or model folder. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from domainbert.base.choices import choices_of, concrete_subclasses, import_sibling
from domainbert.base.errors import DomainbertError
from domainbert.tasks.config import TASK_KEY, TaskConfig, folder_name
from domainbert.tasks.output import JsonlWriter, PredictionWriter

_BUILT_IN = f"{__name__.partition('.')[0]}."


def prediction_writer(task: str, format: str) -> type[PredictionWriter]:
    """Return the class that writes predictions of a task in a format.

    The format is `jsonl`, or a key of `WRITERS` in `writers.py`, an optional file in the folder of the task. Raise
    `DomainbertError` for another format.
    """
    writers: dict[str, type[PredictionWriter]] = {"jsonl": JsonlWriter}
    if format not in writers:
        config_class = _tasks_by_name()[task]
        if find_spec(f"{config_class.__module__.rpartition('.')[0]}.writers"):
            writers |= import_sibling(config_class, "writers", "task").WRITERS
    if format not in writers:
        raise DomainbertError(
            where="output_format",
            found=repr(format[:80]),
            expected=f"{' or '.join(writers)}, as the model is for {task}",
        )
    return writers[format]


def task_kind(head: str | None, fields: Mapping[str, Any]) -> type[TaskConfig] | None:
    """Return the `TaskConfig` class of a model folder; None if it has no task.

    The task is named in `fields`, the content of `config.json`. Without a name, it is the first task whose detector
    accepts `head` and `fields`.

    Raises:
        DomainbertError: unknown task name; two tasks with the same name.
    """
    tasks = _tasks_by_name()
    name = fields.get(TASK_KEY)
    if name is None:
        built_in_first = reversed(tasks.values())  # `tasks` has them last
        matches = (
            task for task in built_in_first if task.format_detector and task.format_detector.matches_model(head, fields)
        )
        return next(matches, None)
    if not isinstance(name, str) or name not in tasks:
        raise DomainbertError(
            where=TASK_KEY,
            found=repr(str(name)[:80]),
            expected=f"one of {', '.join(sorted(tasks))} (--allow-import PKG imports the package of your own task)",
        )
    return tasks[name]


def config_from_fields(kind: type[TaskConfig], fields: Mapping[str, Any]) -> TaskConfig | None:
    """Return the configuration of a task with the settings in `fields`, the content of a model's `config.json`.

    Missing settings have their defaults. None if one of these settings has no default.
    """
    try:
        return kind(**kind.evaluation.settings_from_model_config(fields))
    except TypeError:  # a setting without a default is missing
        return None


def _tasks_by_name() -> dict[str, type[TaskConfig]]:
    """Return the classes by folder name, built-in tasks last. If one module defines a name twice, the last class
    counts, as a notebook cell that runs again defines its class again."""
    choices_of(TaskConfig)  # imports the built-in tasks
    tasks: dict[str, type[TaskConfig]] = {}
    for task in sorted(concrete_subclasses(TaskConfig), key=lambda task: task.__module__.startswith(_BUILT_IN)):
        name = folder_name(task)
        other = tasks.get(name)
        if other is not None and other.__module__ != task.__module__:
            raise DomainbertError(
                where=other.__module__,
                found=f"the folder name {name!r}, which {task.__module__} also has",
                hint="rename one of the two folders: a model folder names its task by this name",
            )
        tasks[name] = task
    return tasks
