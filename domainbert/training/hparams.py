"""Settings as arguments of modules, and their conversion back from plain values, as in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from typing_extensions import Self

from domainbert.base.choices import choices_of, class_path, concrete_subclasses, is_choice
from domainbert.base.errors import DomainbertError
from domainbert.base.fields import LISTS, check_fields, field_types, is_union, renamed_fields, strip_ranges


def read_argument(name: str, hint: Any, value: Any) -> Any:
    """Convert an argument with `from_plain`; raise `DomainbertError` if it must be an instance of a class, but is not.

    A class is a dataclass or a choice; `hint` may be a union with null or with plain types, which are not checked.
    """
    value = from_plain(hint, value)
    members = get_args(hint) if is_union(hint) else (hint,)
    base = next((member for member in members if is_choice(member) or is_dataclass(member)), None)
    is_null_of_union = value is None and hint is not base
    if base is not None and not isinstance(value, base) and not is_null_of_union:
        choices = f": {', '.join(choices_of(base))}" if is_choice(base) else ""
        raise DomainbertError(where=name, found=f"{value!r:.80}", expected=f"an instance of {base.__name__}{choices}")
    return value


@dataclass(frozen=True)
class Arguments:
    """Settings that are keyword arguments of a module or data module; a stage with these keys inherits them."""

    @classmethod
    def of(cls, settings: object | None, **changes: Any) -> Self:
        """Return the fields of this class in `settings`, such as the settings of a stage, with `changes`, perhaps
        plain values."""
        hints = field_types(cls)  # type: ignore[arg-type]
        given = cls() if settings is None else read_argument("settings", cls, settings)
        changes = {name: read_argument(name, hints.get(name, Any), value) for name, value in changes.items()}
        changes = {**{name: getattr(given, name) for name in hints}, **changes}
        instance = cls(**changes)  # LightningCLI finds the options of `changes` by this line
        check_fields(instance)
        return instance


def from_plain(hint: Any, value: Any) -> Any:
    """Convert a result of `as_plain` back to the type `hint`; return any other value unchanged.

    A class is looked up among the registered subclasses of the abstract class in `hint`, never imported.
    """
    hint = strip_ranges(hint)
    if is_union(hint):  # convert only if exactly one member of the union can be the type of the value
        members = [member for member in map(strip_ranges, get_args(hint)) if _may_hold(member, value)]
        return from_plain(members[0], value) if len(members) == 1 else value
    if isinstance(value, (list, tuple)) and get_origin(hint) in LISTS:
        item_hint = get_args(hint)[0]
        items = [from_plain(item_hint, item) for item in value]
        return tuple(items) if get_origin(hint) is tuple else items
    if hint is Path and isinstance(value, str):
        return Path(value)
    if not (isinstance(hint, type) and isinstance(value, Mapping) and _may_hold(hint, value)):
        return value
    if is_choice(hint):
        return _instance(_subclass(hint, str(value.get("class_path"))), value.get("init_args") or {})
    return _instance(hint, value)


def _may_hold(hint: Any, value: Any) -> bool:
    """Whether `value` is a mapping and the type a dataclass or a choice, or both are lists."""
    if isinstance(value, Mapping):
        return is_dataclass(hint) or is_choice(hint)
    return isinstance(value, list) and get_origin(hint) in LISTS


def _instance(cls: type, fields: Mapping[str, Any]) -> Any:
    """Return an instance of a dataclass from plain values of its fields."""
    hints, new_names = field_types(cls), renamed_fields(cls)  # checkpoints of an earlier version have the old names
    fields = {new_names.get(name, name): field for name, field in fields.items()}
    if unknown := sorted(map(str, fields.keys() - hints.keys())):
        raise DomainbertError(
            where=cls.__name__, found=f"the key {unknown[0]!r}", expected=f"one of {', '.join(hints)}"
        )
    return cls(**{name: from_plain(hints[name], field) for name, field in fields.items()})


def _subclass(base: type, name: str) -> type:
    # `name` is a class name or a class path
    choices_of(base)  # imports the classes of this package
    matches: list[type] = [cls for cls in concrete_subclasses(base) if name in (cls.__name__, class_path(cls))]
    if not matches:
        names = ", ".join(sorted(cls.__name__ for cls in concrete_subclasses(base)))
        raise DomainbertError(
            where="class_path", found=repr(name[:80]), expected=f"a subclass of {base.__name__}: {names}"
        )
    return matches[0]
