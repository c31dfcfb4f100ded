"""The stages of the command line: one table, imported lazily."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError
from domainbert.settings.tree import nearest

if TYPE_CHECKING:
    from domainbert.stages.early_checks import Given

STAGES = {
    "sample": "domainbert.stages.sample:sample",
    "vocab": "domainbert.stages.vocab:vocab",
    "transfer": "domainbert.stages.transfer:transfer",
    "prepare": "domainbert.stages.prepare:prepare",
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
    speed_only: frozenset[str]
    """Dotted keys that do not change the result: `SPEED_ONLY` of the stage's module."""
    streams: frozenset[str] = frozenset()
    """Keys of inputs that may be standard input or a pipe: `STREAMS` of the stage's module."""

    parts: str | None = None
    """The setting that lists the parts of its output, each made alone, from the other settings: `PARTS` of the module.
    A part that is finished is kept when others are asked for."""

    check: Callable[[Given], None] | None = None
    """Tries before any stage runs what can be tried then: `check_arguments` of the stage's module."""

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return self.description.partition("\n")[0]

    @property
    def description(self) -> str:
        """The docstring before its sections."""
        return (inspect.getdoc(self.function) or "").partition("\n\nArgs:")[0]


def load_stage(name: str) -> Stage:
    """Import the module of a stage; an unknown name is a `DomainbertError` with the nearest one."""
    if name not in STAGES:
        raise DomainbertError(f"{name}: no such stage; {nearest(name, list(STAGES))}")
    module_name, _, function_name = STAGES[name].partition(":")
    module = importlib.import_module(module_name)
    speed_only, streams = (frozenset(getattr(module, constant, ())) for constant in ("SPEED_ONLY", "STREAMS"))
    parts, check = getattr(module, "PARTS", None), getattr(module, "check_arguments", None)
    return Stage(name, getattr(module, function_name), speed_only, streams, parts, check)
