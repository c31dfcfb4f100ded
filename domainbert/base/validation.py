"""Validation of dataclass fields by their types, with pydantic, and descriptions of types for messages.

The dataclasses are standard ones (`@dataclass(frozen=True)`), not pydantic's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, InstanceOf, StrictBool, TypeAdapter, ValidationError

from domainbert.base.errors import Problems
from domainbert.base.paths import OnHub
from domainbert.base.ranges import Items, Range, as_scalar

LISTS = (list, tuple, Sequence)
"""Types whose values are YAML lists."""

MAPPINGS = (dict, Mapping)
"""Types whose values are YAML mappings with free keys."""

_DESCRIPTIONS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    NoneType: "null",
    Any: "any value",
}


def check_fields(instance: object) -> None:
    """Raise one `DomainbertError` that lists all fields of a dataclass whose values do not match type and range."""
    problems = Problems(type(instance).__name__)
    cls: type = type(instance)
    for name, hint in field_types(cls).items():
        for index, value, expected in type_mismatches(getattr(instance, name), hint):
            problems.add(f"{name}{index}: found {value!r:.80}; expected {expected}")
    problems.raise_if_any()


@cache
def field_types(cls: type) -> Mapping[str, Any]:
    """Return the types of the fields of a dataclass by field name, with their ranges (`Annotated`)."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def type_mismatches(value: Any, hint: Any) -> list[tuple[str, Any, str]]:
    """Return (index, value found, description of the expected type) for each part of a value that does not match a
    type; [] if all match. The index is `[0]` or `[key]` of an item, and "" for the value itself."""
    try:
        _adapter(hint).validate_python(value)
    except ValidationError:
        members = get_args(hint) if is_union(hint) else [hint]
        in_items = [mismatch for member in members for mismatch in _item_mismatches(value, strip_ranges(member))]
        return in_items or [("", value, describe(hint))]
    return []


def _item_mismatches(value: Any, hint: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield the items of a list or mapping that do not match, as in `type_mismatches`."""
    item_hints = [item for item in get_args(hint) if item is not Ellipsis]
    if get_origin(hint) in LISTS and isinstance(value, (list, tuple)):
        entries: Iterable[tuple[Any, Any]] = enumerate(value)
    elif get_origin(hint) in MAPPINGS and isinstance(value, Mapping):
        entries, item_hints = value.items(), item_hints[1:]  # without the type of the keys
    else:
        return
    for (key, item), item_hint in zip(entries, cycle(item_hints), strict=False):
        yield from ((f"[{key}]{index}", *rest) for index, *rest in type_mismatches(item, item_hint))


def parse_plain(value: Any, hint: Any) -> Any:
    """Convert a plain value from YAML or JSON to a type, such as text to a path.

    Raises:
        ValueError: the value does not match. An integer is accepted as a float; `true` and `"5"` are not numbers.
    """
    return value if hint is Any else _adapter(hint).validate_json(json.dumps(value), strict=True)


def strip_ranges(hint: Any) -> Any:
    """Return a type without its ranges: `int` for `Annotated[int, ...]`."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def is_union(hint: Any) -> bool:
    """Return whether a type is `A | B` or `Union[A, B]`."""
    return get_origin(hint) in (Union, UnionType)


def describe(hint: Any, describe_class: Callable[[type], str] = lambda cls: cls.__name__) -> str:
    """Describe a type with its ranges in words: `int | None` is `an integer or null`. `describe_class` describes a
    dataclass, by default by its name."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    limits = "".join(f" {extra}" for extra in extras if isinstance(extra, (Range, Items, OnHub)))
    hint = strip_ranges(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if is_union(hint):
        return " or ".join(describe(member, describe_class) for member in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin in LISTS:
        has_fixed_length = origin is tuple and arguments[-1] is not Ellipsis
        size = limits or (f" of {len(arguments)} items" if has_fixed_length else "")
        return f"a list{size}, each item {describe(arguments[0], describe_class)}"
    if origin in MAPPINGS:
        return f"a mapping, each value {describe(arguments[1], describe_class)}"
    return (_DESCRIPTIONS[hint] if hint in _DESCRIPTIONS else describe_class(hint)) + limits


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_shallow_hint(hint))


def _shallow_hint(hint: Any) -> Any:
    """Return the type for pydantic: with strict booleans, text from a path, and an `isinstance` check for each
    dataclass, because an instance has already validated its fields."""
    origin: Any = Union if is_union(hint) else get_origin(hint)
    if origin in (Union, Annotated, *LISTS, *MAPPINGS):
        return origin[tuple(map(_shallow_hint, get_args(hint)))]
    if hint is bool:
        return StrictBool  # not "yes" or 1
    if hint is str:
        return Annotated[str, BeforeValidator(as_scalar)]
    is_dataclass = isinstance(hint, type) and hint not in _DESCRIPTIONS
    return Annotated[hint, InstanceOf()] if is_dataclass else hint
