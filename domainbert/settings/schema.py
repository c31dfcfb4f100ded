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
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from domainbert.base.choices import choices_of, default_of, is_choice, named_files
from domainbert.base.fields import LISTS, MAPPINGS, describe_type, is_union, strip_ranges


def _settings_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass that are settings. If all of them are keyword-only, required fields are first,
    and own fields before inherited fields; otherwise they are in the order of the arguments."""
    fields = [item for item in dataclasses.fields(cls) if item.init]
    if all(item.kw_only for item in fields):
        names = [name for base in cls.__mro__ for name in inspect.get_annotations(base)]  # `cls` first, then its bases
        positions = {name: index for index, name in enumerate(names)}  # an overridden field: the position in the base
        fields.sort(key=lambda item: (default_of(item) is not dataclasses.MISSING, positions[item.name]))
    return fields


def defaults_of(cls: type) -> dict[str, Any]:
    """Return the default of each setting of a dataclass by name; `dataclasses.MISSING` for required settings."""
    return {item.name: default_of(item) for item in _settings_fields(cls)}


def fields_with_metadata(cls: type, mark: dict[str, bool]) -> list[str]:
    """Return the names of the settings with the metadata `mark`: `SPEED_ONLY`, `STREAM`, `PARTS`, `BY_INPUT` or
    `ORDERED` of `base.fields`."""
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


def _describe_group(cls: Any) -> str:
    if is_choice(cls):
        names = ", ".join([*choices_of(cls), *named_files(cls)])
        return f"one of {names} (or class_path with its settings, or a YAML file with both)"
    if dataclasses.is_dataclass(cls):
        shorthand = f", or only the value of {cls.shorthand}" if hasattr(cls, "shorthand") else ""
        return "a mapping with the keys " + ", ".join(item.name for item in dataclasses.fields(cls)) + shorthand
    return str(getattr(cls, "__name__", cls))


describe = partial(describe_type, describe_class=_describe_group)
"""Return a description of a type in words, with its ranges and the names of its choices."""


def is_group(hint: Any) -> bool:
    """Return whether values of a type are mappings with fixed keys: it is a dataclass, or an abstract base of some."""
    return is_choice(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint))


def groups_in(hint: Any) -> list[type]:
    """Return the groups (see `is_group`) in a type: the type itself, its items, or the members of a union; [] if it has
    none."""
    return [member for member in (strip_ranges(hint), *get_args(strip_ranges(hint))) if is_group(member)]


def may_stand_alone(hint: Any) -> bool:
    """Return whether an item of this type may be written without the list around it: its type is a scalar, a choice of
    classes, or a class with a shorthand."""
    return _is_single(hint) or is_choice(hint) or hasattr(hint, "shorthand")


def pick_member(union: Any, value: Any) -> Any:
    """Return the member of a union that matches a value (null, scalar, list or mapping); the union itself if several
    members or none match.

    A text is matched as a single value first, then as the name of a group or of its file, then as an item of a list.
    """
    if value is None:
        return NoneType if NoneType in get_args(union) else union
    # members by the values that they match: mappings with fixed keys, lists, mappings with free keys
    members = [member for member in get_args(union) if member is not NoneType]
    groups = [member for member in members if is_group(member)]
    lists = [member for member in members if get_origin(strip_ranges(member)) in LISTS]
    mappings = [member for member in members if get_origin(strip_ranges(member)) in MAPPINGS]
    if isinstance(value, dict):
        matches = groups + mappings
    elif isinstance(value, list):
        matches = lists + [group for group in groups if hasattr(group, "shorthand")]
    else:  # the first kind of member that the union has: single value, group by its name, list with a single item
        matches = [member for member in members if _is_single(member)]
        if not matches and isinstance(value, str):
            matches = groups
        if not matches:
            matches = [member for member in lists if may_stand_alone(get_args(strip_ranges(member))[0])]
    return matches[0] if len(matches) == 1 else union


def _is_single(hint: Any) -> bool:
    hint = strip_ranges(hint)
    if is_union(hint):
        return all(map(_is_single, get_args(hint)))
    return not is_group(hint) and get_origin(hint) not in (*LISTS, *MAPPINGS)


def input_files(value: Any) -> Iterator[Path]:
    """Yield the files and folders that exist in a setting, also in the fields of a dataclass."""
    if isinstance(value, Path) and (value.is_file() or value.is_dir()):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from input_files(item)
    elif dataclasses.is_dataclass(value):
        if hasattr(value, "input_files"):
            yield from value.input_files()
        for name in defaults_of(type(value)):
            yield from input_files(getattr(value, name))
