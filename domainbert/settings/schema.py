"""The settings of a stage: one frozen dataclass, whose fields are its YAML keys, options and arguments from Python.

    @dataclass(frozen=True, kw_only=True)
    class Prepare:
        corpus: CorpusConfig
        num_workers: Workers = field(default=2, metadata=SPEED_ONLY)

The string under a field is its help. `__post_init__` checks the fields together: its `DomainbertError` begins with the
name of the wrong field.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

from domainbert.base.choices import default_of


def _settings_fields(kind: type) -> list[dataclasses.Field[Any]]:
    """Required settings come first, and those that a dataclass declares before those that it inherits."""
    found = [item for item in dataclasses.fields(kind) if item.init]
    if all(item.kw_only for item in found):
        names = [name for base in kind.__mro__ for name in inspect.get_annotations(base)]
        place = {name: number for number, name in enumerate(names)}  # what is declared anew keeps its place in the base
        found.sort(key=lambda item: (default_of(item) is not dataclasses.MISSING, place[item.name]))
    return found


def defaults_of(kind: type) -> dict[str, Any]:
    """The settings of a dataclass by name, with their defaults; `dataclasses.MISSING` for required ones."""
    return {item.name: default_of(item) for item in _settings_fields(kind)}


def marked(kind: type, mark: dict[str, bool]) -> list[str]:
    """The names of the settings with `SPEED_ONLY`, `STREAM`, `PARTS`, `BY_INPUT` or `ORDERED`."""
    return [item.name for item in _settings_fields(kind) if mark.keys() <= item.metadata.keys()]


def opens(kind: type) -> dict[str, str]:
    """The names of the settings that a stage opens, and what it expects there."""
    return {item.name: item.metadata["opens"] for item in _settings_fields(kind) if "opens" in item.metadata}


@lru_cache
def settings_class(stage: Callable[..., Any]) -> type:
    """The dataclass with the settings of a stage function, or the given dataclass itself."""
    if isinstance(stage, type) and dataclasses.is_dataclass(stage):
        return stage
    kind: type = get_type_hints(stage, include_extras=True)["settings"]
    return kind
