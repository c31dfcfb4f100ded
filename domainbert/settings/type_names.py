"""Types of settings: groups in words, for messages, and the only member of a union that a value can mean."""

from __future__ import annotations

import dataclasses
from functools import partial
from types import NoneType
from typing import Any, get_args, get_origin

from domainbert.base import validation
from domainbert.base.choices import choices_of, is_choice, named_files
from domainbert.base.validation import LISTS, MAPPINGS, bare, is_union


def _describe_group(kind: Any) -> str:
    if is_choice(kind):
        names = f"one of {', '.join(choices_of(kind))} (class_path and init_args, or a YAML file with them)"
        return f"{names}, or {', '.join(named_files(kind))}" if named_files(kind) else names
    if dataclasses.is_dataclass(kind):
        alone = f", or {kind.shorthand} alone" if hasattr(kind, "shorthand") else ""
        return "a mapping with the keys " + ", ".join(item.name for item in dataclasses.fields(kind)) + alone
    return str(getattr(kind, "__name__", kind))


describe = partial(validation.describe, group=_describe_group)
"""A type in words, with its ranges and the names of its choices."""


def is_group(hint: Any) -> bool:
    """Whether values of a type are mappings with known keys: a dataclass, or a choice among some."""
    return is_choice(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint))


def groups_in(hint: Any) -> list[type]:
    """The groups that a type is, or that are its items or the members of a union."""
    return [member for member in (bare(hint), *get_args(bare(hint))) if is_group(member)]


def may_stand_alone(hint: Any) -> bool:
    """Whether an item of a list may be written without the list: a single value, or a name for more."""
    return _is_single(hint) or is_choice(hint) or hasattr(hint, "shorthand")


def pick_member(union: Any, value: Any) -> Any:
    """The one member of a union that fits the shape of `value`; the union itself when several or none do.

    A text is a single value before it is the name of a group or of its file, and an item of a list if it is neither.
    """
    if value is None:
        return NoneType if NoneType in get_args(union) else union
    members = [member for member in get_args(union) if member is not NoneType]
    groups, lists = list(filter(is_group, members)), [one for one in members if get_origin(bare(one)) in LISTS]
    if isinstance(value, dict):
        matches = groups + [member for member in members if get_origin(bare(member)) in MAPPINGS]
    elif isinstance(value, list):
        matches = lists + [group for group in groups if hasattr(group, "shorthand")]
    else:
        matches = list(filter(_is_single, members)) or (groups if isinstance(value, str) else [])
        matches = matches or [one for one in lists if may_stand_alone(get_args(bare(one))[0])]
    return matches[0] if len(matches) == 1 else union


def _is_single(hint: Any) -> bool:
    """Whether values of a type are neither lists nor mappings."""
    hint = bare(hint)
    if is_union(hint):
        return all(map(_is_single, get_args(hint)))
    return not is_group(hint) and get_origin(hint) not in (*LISTS, *MAPPINGS)
