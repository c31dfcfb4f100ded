"""The settings of a stage: one frozen dataclass, whose fields are its YAML keys, options and arguments from Python.

    @dataclass(frozen=True, kw_only=True)
    class Prepare:
        corpus: CorpusConfig
        num_workers: Workers = field(default=2, metadata=SPEED_ONLY)

The string under a field is its help. What the fields have to be together is said by `__post_init__`, in a
`DomainbertError` that begins with the field that is wrong.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

SPEED_ONLY = {"speed_only": True}
"""Metadata of a setting that does not change the result, so that another value does not run the stage again."""

STREAM = {"stream": True}
"""Metadata of a path that may be standard input (`-`), a pipe or a device."""

PARTS = {"parts": True}
"""Metadata of the setting that lists the parts of the output, such as seeds, each made alone, from the other settings.
A part that is finished is kept when others are asked for."""


def settings_fields(kind: type) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that are settings: required ones first; those it declares before those it inherits."""
    found = [item for item in dataclasses.fields(kind) if item.init]
    if all(item.kw_only for item in found):
        declared = [name for base in kind.__mro__ for name in inspect.get_annotations(base)]
        found.sort(key=lambda item: (_default(item) is not dataclasses.MISSING, declared.index(item.name)))
    return found


def defaults_of(kind: type) -> dict[str, Any]:
    """The settings of a dataclass by name, with their defaults; `dataclasses.MISSING` where one is due."""
    return {item.name: _default(item) for item in settings_fields(kind)}


def marked(kind: type, mark: dict[str, bool]) -> list[str]:
    """The names of the settings with `SPEED_ONLY`, `STREAM` or `PARTS`."""
    return [item.name for item in settings_fields(kind) if mark.keys() <= item.metadata.keys()]


@lru_cache
def settings_class(stage: Callable[..., Any]) -> type:
    """The dataclass with the settings of a stage function, or the given dataclass itself."""
    if isinstance(stage, type) and dataclasses.is_dataclass(stage):
        return stage
    hints = get_type_hints(stage, include_extras=True)
    return hints["settings"] if takes_settings(stage) else _of_arguments(stage, hints)


def takes_settings(stage: Callable[..., Any]) -> bool:
    """Whether a stage function takes its settings as one dataclass, or else as arguments."""
    return list(inspect.signature(inspect.unwrap(stage)).parameters) == ["out", "settings"]


def _of_arguments(stage: Callable[..., Any], hints: dict[str, Any]) -> type:
    """The dataclass of a stage that takes its settings as arguments, with the constants of its module as metadata."""
    module, check = sys.modules[stage.__module__], getattr(stage, "check", None)
    metadata: dict[str, dict[str, bool]] = {}
    for constant, mark in (("SPEED_ONLY", SPEED_ONLY), ("STREAMS", STREAM), ("PARTS", PARTS)):
        names = getattr(module, constant, ())
        metadata |= dict.fromkeys([names] if isinstance(names, str) else names, mark)
    parameters = {name: one for name, one in inspect.signature(stage).parameters.items() if name != "out"}
    fields = [(name, hints[name], _as_field(one, metadata.get(name, {}))) for name, one in parameters.items()]
    body: dict[str, Any] = {"__doc__": inspect.getdoc(stage), "__module__": stage.__module__}
    if check is not None:
        body["__post_init__"] = lambda self: check(**vars(self))
    return dataclasses.make_dataclass(f"{stage.__name__} settings", fields, namespace=body, frozen=True, kw_only=True)


def _as_field(parameter: inspect.Parameter, metadata: dict[str, bool]) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=parameter.default, metadata=metadata)


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
