"""Problems of a stage's arguments that are found before any stage runs, with their lines of the YAML."""

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
    from domainbert.stages.early_checks import Given
    from domainbert.stages.inputs import Inputs

_HAS_A_LINE = re.compile(r"\S.*:\d+: ")


def _given_to(stage: Stage, settings: Settings, inputs: Inputs, earlier: Mapping[str, Job]) -> Given:
    """The arguments of a stage, and those of the earlier stages of a recipe, yet to run, whose folders they name."""
    from domainbert.stages.early_checks import Given

    names = {path: stage_of(reference) for path, reference in settings.references.items()}
    made_by = {path: earlier[name] for path, name in names.items() if name in earlier}
    makers = {path: _given_to(job.stage, job.settings, inputs, earlier) for path, job in made_by.items()}
    return Given(defaults_of(stage.settings) | settings.arguments, makers, inputs)


def add_early_problems(
    stage: Stage,
    settings: Settings,
    node: Node,
    problems: Problems,
    inputs: Inputs,
    prefix: str = "",
    earlier: Mapping[str, Job] = {},
) -> None:
    """Check the inputs that a stage declares, let it check its arguments, and add the problems.

    The problems of a broken file are added once for all stages that read it.

    Args:
        stage: the stage, whose module may have `check_arguments`.
        settings: its checked settings.
        node: the mapping they were read from.
        problems: takes the problems.
        inputs: opens what the settings name.
        prefix: put before every key, such as `stages.pretrain.`.
        earlier: the stages of a recipe that have to run before it, by name; the files of finished stages exist.
    """
    given = _given_to(stage, settings, inputs, earlier)
    with redirect_stdout(StringIO()):
        given.check_declared(stage.settings)
        if stage.check is not None:
            stage.check(given)
    for key, problem in given.problems:
        place = node.at(re.findall(r"[^.\[\]]+", key)).place(f"{prefix}{key}".rstrip("."))
        message = problem if _HAS_A_LINE.match(problem) else f"{place}: {problem}"
        if message not in problems.messages:
            problems.add(message)
