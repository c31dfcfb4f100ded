"""Types in words, for messages, and the only member of a union that a value can mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from domainbert.base.paths import OnHub
from domainbert.base.ranges import Items, Range, without_limits
from domainbert.settings.choices import choices_of, is_choice, named_files

_LISTS = (list, tuple, Sequence)
_WORDS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    NoneType: "null",
    Any: "any value",
}


def is_union(hint: Any) -> bool:
    """Whether a type is `A | B` or `Union[A, B]`."""
    return get_origin(hint) in (Union, UnionType)


def describe(hint: Any) -> str:
    """`int | None` as `an integer or null`; ranges are said, too."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    limits = "".join(f" {extra}" for extra in extras if isinstance(extra, (Range, Items, OnHub)))
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    origin, arguments = get_origin(hint), get_args(hint)
    if is_union(hint):
        return " or ".join(describe(member) for member in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin in _LISTS:
        size = limits or (f" of {len(arguments)} items" if is_fixed(hint) else "")
        return f"a list{size}, each item {describe(arguments[0])}"
    if origin in (dict, Mapping):
        return f"a mapping, each value {describe(arguments[1])}"
    if is_choice(hint):
        names = f"one of {', '.join(choices_of(hint))} (class_path and init_args, or a YAML file with them)"
        return f"{names}, or {', '.join(named_files(hint))}" if named_files(hint) else names
    if dataclasses.is_dataclass(hint):
        alone = f", or {hint.shorthand} alone" if hasattr(hint, "shorthand") else ""
        return "a mapping with the keys " + ", ".join(item.name for item in dataclasses.fields(hint)) + alone
    return (_WORDS[hint] if hint in _WORDS else str(getattr(hint, "__name__", hint))) + limits


def is_fixed(hint: Any) -> bool:
    """Whether a type is a tuple with a type for each of its places."""
    return get_origin(hint) is tuple and get_args(hint)[-1] is not Ellipsis


def is_group(hint: Any) -> bool:
    """Whether values of a type are mappings with known keys: a dataclass, or a choice among some."""
    return is_choice(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint))


def groups_in(hint: Any) -> list[type]:
    """The groups that a type is, or that are its items or the members of a union."""
    bare = without_limits(hint)
    return [member for member in (bare, *get_args(bare)) if is_group(member)]


def is_single(hint: Any) -> bool:
    """Whether values of a type are single: neither a list nor a mapping."""
    hint = without_limits(hint)
    if is_union(hint):
        return all(map(is_single, get_args(hint)))
    return not is_group(hint) and get_origin(hint) not in (*_LISTS, dict, Mapping)


def may_stand_alone(hint: Any) -> bool:
    """Whether an item of a list may be written without the list: a single value, or a name for more."""
    return is_single(hint) or is_choice(hint) or hasattr(hint, "shorthand")


def pick_member(union: Any, value: Any) -> Any:
    """The one member of a union that fits the shape of `value`; the union itself when several or none do.

    A single value fits a list if it may be an item and fits nothing else.
    """
    members = [member for member in get_args(union) if member is not NoneType]
    if value is None:
        return NoneType if NoneType in get_args(union) else union
    fitting = [member for member in members if _shape_fits(member, value)]
    if not fitting and not isinstance(value, (list, dict)):
        bare = [(member, without_limits(member)) for member in members]
        lists = [(member, get_args(kind)[0]) for member, kind in bare if get_origin(kind) in _LISTS]
        fitting = [member for member, item in lists if may_stand_alone(item)]
    if len(fitting) > 1 and isinstance(value, str):  # a text is a path before it is the name of a group or of its file
        fitting = [member for member in fitting if is_single(member)]
    return fitting[0] if len(fitting) == 1 else union


def _shape_fits(hint: Any, value: Any) -> bool:
    hint = without_limits(hint)
    if isinstance(value, dict):
        return is_group(hint) or get_origin(hint) in (dict, Mapping)
    if isinstance(value, list):
        return get_origin(hint) in _LISTS or hasattr(hint, "shorthand")
    return is_single(hint) or (is_group(hint) and isinstance(value, str))
