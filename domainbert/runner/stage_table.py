"""Table of the stages; their modules are imported lazily."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, suggest_name
from domainbert.base.fields import PARTS
from domainbert.settings.schema import fields_with_metadata, settings_class

if TYPE_CHECKING:
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

    reports: bool | None = None
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
        raise DomainbertError(f"{name}: no such stage; {suggest_name(name, list(STAGES))}")
    module_name, _, function_name = STAGES[name].partition(":")
    module = importlib.import_module(module_name)
    members: Any = (
        getattr(module, member, None) for member in (function_name, "check_arguments", "show_examples", "REPORTS")
    )
    return Stage(name, *members)
