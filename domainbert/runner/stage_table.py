"""Table of the stages, whose modules are imported lazily, and the checks of their settings before any stage runs."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.base.fields import PARTS
from domainbert.settings.schema import defaults_of, fields_with_metadata, settings_class

if TYPE_CHECKING:
    from domainbert.runner.job_state import Job
    from domainbert.settings.reader import Settings
    from domainbert.settings.yaml_files import Node
    from domainbert.stages.early_checks import StageArguments
    from domainbert.stages.stage import Inputs

STAGES = {
    "sample": "domainbert.stages.sample:sample",
    "vocab": "domainbert.stages.vocab:vocab",
    "transfer": "domainbert.stages.transfer:transfer",
    "check": "domainbert.stages.check:check",
    "prepare": "domainbert.stages.prepare:prepare",
    "merge": "domainbert.stages.merge:merge",
    "pretrain": "domainbert.stages.pretrain:pretrain",
    "distill": "domainbert.stages.distill:distill",
    "distill-task": "domainbert.stages.distill_task:distill_task",
    "finetune": "domainbert.stages.finetune:finetune",
    "evaluate": "domainbert.stages.evaluate:evaluate",
    "predict": "domainbert.stages.predict:predict",
    "export": "domainbert.stages.export:export",
}
"""Stage name to `module:function`, in the usual order of stages."""


@dataclass(frozen=True)
class Stage:
    """A stage function and the optional members of its module."""

    name: str
    function: Callable[..., dict[str, Any]]
    check: Callable[[StageArguments], None] | None = None
    """`check_arguments` of the module: check the arguments as far as possible before any stage runs."""

    show: Callable[[Any, int, Inputs], list[str]] | None = None
    """`show_examples` of the module: return the lines of `--show N` for validated settings, N and the inputs."""

    reports: bool = False
    """`REPORTS` of the module: whether the output is a report, which another run may replace without --force."""

    @property
    def settings(self) -> type:
        """The dataclass of the stage's settings."""
        return settings_class(self.function)

    @property
    def parts(self) -> str | None:
        """Name of the setting that lists the parts of the output (such as `seeds`), or None."""
        return next(iter(fields_with_metadata(self.settings, PARTS)), None)

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return self.description.partition("\n")[0]

    @property
    def description(self) -> str:
        """The function's docstring without its sections."""
        return re.split(r"\n\n(?:Args|Raises|Returns):", inspect.getdoc(self.function) or "")[0]


def load_stage(name: str) -> Stage:
    """Return a stage, whose module is imported; raise `DomainbertError` for an unknown name."""
    if name not in STAGES:
        raise DomainbertError(f"no stage '{name}'", **suggest_name(name, STAGES))
    module_name, _, function_name = STAGES[name].partition(":")
    module = importlib.import_module(module_name)
    return Stage(
        name,
        function=getattr(module, function_name),
        check=getattr(module, "check_arguments", None),
        show=getattr(module, "show_examples", None),
        reports=getattr(module, "REPORTS", False),
    )


def stage_of(reference: str) -> str:
    """Return the stage name of a reference: `vocab` for `@vocab/vocab.txt`."""
    return reference.removeprefix("@").partition("/")[0]


def referred_stages(settings: Settings) -> list[str]:
    """Return the sorted names of the earlier stages that settings refer to."""
    return sorted({stage_of(reference) for reference in settings.references.values()})


def _stage_arguments(stage: Stage, settings: Settings, inputs: Inputs, pending: Mapping[str, Job]) -> StageArguments:
    from domainbert.stages.early_checks import StageArguments  # here: `--help` does not need it

    pending_arguments = {}
    for path, reference in settings.references.items():
        job = pending.get(stage_of(reference))
        if job is not None:
            pending_arguments[path] = _stage_arguments(job.stage, job.settings, inputs, pending)
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

    A problem of a file that several stages read is added once.

    Args:
        node: the YAML mapping that the settings were read from.
        inputs: opens the files and folders of the settings.
        prefix: prefix of every key in a message, such as `stages.pretrain.`.
        pending: earlier stages of the recipe that have not run yet, by name; the files of finished stages exist.
    """
    arguments = _stage_arguments(stage, settings, inputs, pending)
    with redirect_stdout(StringIO()):  # readers print the kind of a file
        arguments.check_declared(stage.settings)
        if stage.check is not None:
            stage.check(arguments)
    # a message of another stage may end with the place of that stage, which was added below
    known = {*problems.messages, *(str(error.also_at(*error.also[:-1])) for error in problems.errors)}
    for key, error in arguments.problems:
        key_parts = re.findall(r"[^.\[\]]+", key)  # `models[0].path` has the parts models, 0, path
        location = node.at(key_parts).location(f"{prefix}{key}".rstrip("."))
        in_file = error.line is not None  # of several stages, the first that reads the file is named
        placed = error if in_file else error.within(location)
        if str(placed) not in known:
            problems.add(placed.also_at(*placed.also, location) if in_file and prefix else placed)
            known.add(str(placed))
