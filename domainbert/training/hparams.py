"""Conversion of module arguments back from plain values (see `choices.as_plain`), as in checkpoints and YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from domainbert.base.choices import choices_of, class_path, concrete_subclasses, is_choice
from domainbert.base.errors import DomainbertError
from domainbert.base.fields import LISTS, field_types, is_union, renamed_fields, strip_ranges


def read_argument(name: str, base: type, value: Any) -> Any:
    """Convert an argument with `from_plain`; raise `DomainbertError` if it is no instance of `base`."""
    value = from_plain(base, value)
    if not isinstance(value, base):
        choices = f": {', '.join(choices_of(base))}" if is_choice(base) else ""
        raise DomainbertError(f"{name}: found {value!r:.80}; expected an instance of {base.__name__}{choices}")
    return value


def from_plain(hint: Any, value: Any) -> Any:
    """Convert a result of `as_plain` back to the type `hint`; return any other value unchanged.

    A class is looked up among the registered subclasses of the abstract class in `hint`, never imported.

    Raises:
        DomainbertError: unknown class or invalid arguments.
    """
    hint = strip_ranges(hint)
    if is_union(hint):  # convert only if exactly one member of the union can be the type of the value
        members = [strip_ranges(member) for member in get_args(hint)]
        matches: list[Any] = []
        if isinstance(value, Mapping):
            matches = [member for member in members if is_dataclass(member) or is_choice(member)]
        elif isinstance(value, list):
            matches = [member for member in members if get_origin(member) in LISTS]
        return from_plain(matches[0], value) if len(matches) == 1 else value
    if isinstance(value, (list, tuple)) and get_origin(hint) in LISTS:
        item_hint = get_args(hint)[0]
        items = [from_plain(item_hint, item) for item in value]
        return tuple(items) if get_origin(hint) is tuple else items
    if hint is Path and isinstance(value, str):
        return Path(value)
    if not isinstance(value, Mapping) or not isinstance(hint, type):
        return value
    # a mapping: class and arguments of a choice, or the fields of a dataclass
    if is_choice(hint):
        cls = _subclass(hint, str(value.get("class_path")))
        fields = value.get("init_args") or {}
    elif is_dataclass(hint):
        cls, fields = hint, value
    else:
        return value
    hints, new_names = field_types(cls), renamed_fields(cls)  # checkpoints of an earlier version have the old names
    fields = {new_names.get(name, name): field for name, field in fields.items()}
    if unknown := sorted(map(str, fields.keys() - hints.keys())):
        raise DomainbertError(f"{cls.__name__}: found the key {unknown[0]!r}; expected one of {', '.join(hints)}")
    return cls(**{name: from_plain(hints[name], field) for name, field in fields.items()})


def _subclass(base: type, name: str) -> type:
    """Return the registered subclass with this name or class path. Raise `DomainbertError` if there is none."""
    choices_of(base)  # imports the classes of this package
    matches: list[type] = [cls for cls in concrete_subclasses(base) if name in (cls.__name__, class_path(cls))]
    if not matches:
        names = ", ".join(sorted(cls.__name__ for cls in concrete_subclasses(base)))
        raise DomainbertError(f"class_path: found {name[:80]!r}; expected a subclass of {base.__name__}: {names}")
    return matches[0]
