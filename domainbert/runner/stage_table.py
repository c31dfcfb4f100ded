"""The stages of the command line: one table, imported lazily."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, nearest
from domainbert.base.marks import PARTS
from domainbert.settings.schema import marked, settings_class

if TYPE_CHECKING:
    from domainbert.stages.early_checks import Given
    from domainbert.stages.inputs import Inputs

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
"""Stage name to `module:function`, in the order in which they are usually run."""


@dataclass(frozen=True)
class Stage:
    """A stage function under its name."""

    name: str
    function: Callable[..., dict[str, Any]]
    check: Callable[[Given], None] | None = None
    """Checks the arguments as far as possible before any stage runs: `check_arguments` of the stage's module."""

    show: Callable[[Any, int, Inputs], list[str]] | None = None
    """The lines of `--show N`, of checked settings, N and the inputs: `show_examples` of the stage's module."""

    reports: bool | None = None
    """Its output is a report on its inputs, which another run replaces without --force: `REPORTS` of its module."""

    @property
    def settings(self) -> type:
        """The dataclass of its settings."""
        return settings_class(self.function)

    @property
    def parts(self) -> str | None:
        """The setting that lists the parts of its output, if it has one."""
        return next(iter(marked(self.settings, PARTS)), None)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return self.description.partition("\n")[0]

    @property
    def description(self) -> str:
        """The docstring up to its sections."""
        return re.split(r"\n\n(?:Args|Raises|Returns):", inspect.getdoc(self.function) or "")[0]


def load_stage(name: str) -> Stage:
    """Import the module of a stage; an unknown name is a `DomainbertError` with the nearest one."""
    if name not in STAGES:
        raise DomainbertError(f"{name}: no such stage; {nearest(name, list(STAGES))}")
    module_name, _, function_name = STAGES[name].partition(":")
    module = importlib.import_module(module_name)
    parts: Any = (
        getattr(module, part, None) for part in (function_name, "check_arguments", "show_examples", "REPORTS")
    )
    return Stage(name, *parts)
