"""The settings of a stage: a frozen dataclass whose fields are the YAML keys, options and Python arguments.

    @dataclass(frozen=True, kw_only=True)
    class Prepare:
        corpus: CorpusConfig
        num_workers: Workers = field(default=2, metadata=SPEED_ONLY)

The string under a field is its `--help` text. `__post_init__` validates the fields together: its `DomainbertError`
begins with the name of the wrong field.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

from domainbert.base.choices import default_of


def _settings_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass that are settings: required fields first, own fields before inherited fields."""
    fields = [item for item in dataclasses.fields(cls) if item.init]
    if all(item.kw_only for item in fields):
        names = [name for base in cls.__mro__ for name in inspect.get_annotations(base)]
        positions = {name: index for index, name in enumerate(names)}  # overriding keeps the position
        fields.sort(key=lambda item: (default_of(item) is not dataclasses.MISSING, positions[item.name]))
    return fields


def defaults_of(cls: type) -> dict[str, Any]:
    """Return the default of each setting of a dataclass by name; `dataclasses.MISSING` for required settings."""
    return {item.name: default_of(item) for item in _settings_fields(cls)}


def fields_with_metadata(cls: type, mark: dict[str, bool]) -> list[str]:
    """Return the names of the settings with the metadata `mark`: `SPEED_ONLY`, `STREAM`, `PARTS`, `BY_INPUT` or
    `ORDERED` of `base.marks`."""
    return [item.name for item in _settings_fields(cls) if mark.keys() <= item.metadata.keys()]


def opened_settings(cls: type) -> dict[str, str]:
    """Return the content of each path that a stage opens, by name of the setting: "tokenizer", "model" or "trained
    model"."""
    return {item.name: item.metadata["opens"] for item in _settings_fields(cls) if "opens" in item.metadata}


@lru_cache
def settings_class(stage: Callable[..., Any]) -> type:
    """Return the settings dataclass of a stage function: the type of its parameter `settings`. A dataclass is returned
    unchanged."""
    if isinstance(stage, type) and dataclasses.is_dataclass(stage):
        return stage
    cls: type = get_type_hints(stage, include_extras=True)["settings"]
    return cls
