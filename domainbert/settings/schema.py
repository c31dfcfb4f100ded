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

SPEED_ONLY = {"speed_only": True}
"""Metadata of a setting that does not change the result: the stage does not run again for a new value."""

STREAM = {"stream": True}
"""Metadata of a path that may be standard input (`-`), a pipe or a device."""

PARTS = {"parts": True}
"""Metadata of the setting that lists the parts of the output, such as seeds. A part depends only on its own value in
the list and the other settings; finished parts are kept when the list changes."""

BY_INPUT = {"by_input": True}
"""Metadata of the setting that makes a stage process its input file by file and track the state of each file: if only
input files have changed, the stage continues in its folder."""

ORDERED = {"ordered": True}
"""Metadata of a mapping whose order changes the result."""

TOKENIZER, MODEL, TRAINED_MODEL = ({"opens": content} for content in ("tokenizer", "model", "trained model"))
"""Metadata of a path, or a list of paths, that a stage opens: a folder with a tokenizer, a model (perhaps exported), or
a model with its weights. An existing folder is opened before the first stage runs, to find errors early."""


def _settings_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """Fields of a dataclass: required fields first, own fields before inherited fields."""
    fields = [item for item in dataclasses.fields(cls) if item.init]
    if all(item.kw_only for item in fields):
        names = [name for base in cls.__mro__ for name in inspect.get_annotations(base)]
        order = {name: number for number, name in enumerate(names)}  # overriding keeps the position
        fields.sort(key=lambda item: (_default(item) is not dataclasses.MISSING, order[item.name]))
    return fields


def defaults_of(cls: type) -> dict[str, Any]:
    """Settings of a dataclass by name, with their defaults; `dataclasses.MISSING` for required settings."""
    return {item.name: _default(item) for item in _settings_fields(cls)}


def marked(cls: type, mark: dict[str, bool]) -> list[str]:
    """Names of the settings with `SPEED_ONLY`, `STREAM`, `PARTS`, `BY_INPUT` or `ORDERED` metadata."""
    return [item.name for item in _settings_fields(cls) if mark.keys() <= item.metadata.keys()]


def opens(cls: type) -> dict[str, str]:
    """Names of the settings that a stage opens, with the expected content: `tokenizer`, `model`, `trained model`."""
    return {item.name: item.metadata["opens"] for item in _settings_fields(cls) if "opens" in item.metadata}


@lru_cache
def settings_class(stage: Callable[..., Any]) -> type:
    """Settings dataclass of a stage function; a dataclass is returned unchanged."""
    if isinstance(stage, type) and dataclasses.is_dataclass(stage):
        return stage
    cls: type = get_type_hints(stage, include_extras=True)["settings"]
    return cls


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
