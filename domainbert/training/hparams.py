"""Arguments of modules as plain values, which checkpoints hold and YAML writes, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args

from domainbert.base.choices import as_plain, choices_of, class_path, concrete_subclasses, is_choice
from domainbert.base.errors import DomainbertError
from domainbert.base.validation import LISTS, bare, field_types, is_union


def plain(value: Any) -> Any:
    """Return dataclasses, paths and tuples as plain values; a choice as `class_path` and `init_args`."""
    return as_plain(value)


def from_plain(hint: Any, value: Any) -> Any:
    """Return the value of a type that `plain` was given; any other value is returned as it is.

    A class is looked up among the known subclasses of the abstract class in `hint`, never imported.

    Raises:
        DomainbertError: no such class, or values that do not fit it.
    """
    hint = bare(hint)
    if is_union(hint):
        members = [member for member in get_args(hint) if isinstance(bare(member), type)]
        groups = [member for member in members if is_dataclass(bare(member)) or is_choice(bare(member))]
        return from_plain(groups[0], value) if len(groups) == 1 and isinstance(value, Mapping) else value
    if isinstance(value, (list, tuple)) and getattr(hint, "__origin__", None) in LISTS:
        (item_hint, *_) = get_args(hint)
        items = [from_plain(item_hint, item) for item in value]
        return tuple(items) if hint.__origin__ is tuple else items
    if hint is Path and isinstance(value, str):
        return Path(value)
    if not isinstance(value, Mapping) or not isinstance(hint, type):
        return value
    if is_choice(hint):
        kind, fields = _known(hint, str(value.get("class_path"))), value.get("init_args") or {}
    elif is_dataclass(hint):
        kind, fields = hint, value
    else:
        return value
    hints = field_types(kind)
    if unknown := sorted(map(str, fields.keys() - hints.keys())):
        raise DomainbertError(f"{kind.__name__}: found {unknown[0]}; expected {', '.join(hints)}")
    made: Any = {name: from_plain(hints[name], given) for name, given in fields.items()}
    return kind(**{name: tuple(one) if _is_tuple(hints[name], one) else one for name, one in made.items()})


def _is_tuple(hint: Any, value: Any) -> bool:
    members = get_args(hint) if is_union(hint) else (hint,)
    return isinstance(value, list) and any(getattr(bare(one), "__origin__", None) is tuple for one in members)


def _known(base: type, name: str) -> type:
    choices_of(base)  # imports the classes of this package
    found: list[type] = [kind for kind in concrete_subclasses(base) if name in (kind.__name__, class_path(kind))]
    if not found:
        known = ", ".join(sorted(kind.__name__ for kind in concrete_subclasses(base)))
        raise DomainbertError(f"class_path: found {name[:80]!r}; expected one of {known}")
    return found[0]
