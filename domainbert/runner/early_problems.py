"""Check the arguments of a stage before any stage runs, and report problems with their lines of the YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

from domainbert.base.errors import Problems
from domainbert.runner.jobs import Job
from domainbert.runner.manifest import stage_of
from domainbert.runner.stage_table import Stage
from domainbert.settings.reader import Settings
from domainbert.settings.schema import defaults_of
from domainbert.settings.yaml_files import Node

if TYPE_CHECKING:
    from domainbert.stages.early_checks import StageArguments
    from domainbert.stages.stage import Inputs

_STARTS_WITH_LINE = re.compile(r"\S.*:\d+: ")


def _stage_arguments(stage: Stage, settings: Settings, inputs: Inputs, pending: Mapping[str, Job]) -> StageArguments:
    """Return the arguments of a stage, with the arguments of the pending stages whose outputs it names."""
    from domainbert.stages.early_checks import StageArguments

    names = {path: stage_of(reference) for path, reference in settings.references.items()}
    jobs = {path: pending[name] for path, name in names.items() if name in pending}
    pending_arguments = {path: _stage_arguments(job.stage, job.settings, inputs, pending) for path, job in jobs.items()}
    return StageArguments(defaults_of(stage.settings) | settings.arguments, pending_arguments, inputs)


def add_early_problems(
    stage: Stage,
    settings: Settings,
    node: Node,
    problems: Problems,
    inputs: Inputs,
    prefix: str = "",
    pending: Mapping[str, Job] = {},
) -> None:
    """Check the declared inputs of a stage, call its `check_arguments`, and add all problems to `problems`.

    Several stages may read the same broken file; its problems are added once.

    Args:
        stage: the stage to check.
        settings: its validated settings.
        node: the YAML mapping that the settings were read from.
        problems: the list that is extended.
        inputs: opens the files and folders of the settings.
        prefix: prefix of every key in a message, such as `stages.pretrain.`.
        pending: earlier stages of the recipe that have not run yet, by name; the files of finished stages exist.
    """
    arguments = _stage_arguments(stage, settings, inputs, pending)
    with redirect_stdout(StringIO()):
        arguments.check_declared(stage.settings)
        if stage.check is not None:
            stage.check(arguments)
    for key, problem in arguments.problems:
        location = node.at(re.findall(r"[^.\[\]]+", key)).location(f"{prefix}{key}".rstrip("."))
        message = problem if _STARTS_WITH_LINE.match(problem) else f"{location}: {problem}"
        if message not in problems.messages:
            problems.add(message)
