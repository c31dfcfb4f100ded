"""Fields of settings dataclasses: ranges as type annotations, metadata for stages, and validation with pydantic.

batch_size: Annotated[int, Range(1, 1_000_000)]
seeds: Annotated[tuple[Seed, ...], Items(unique=True)] = field(metadata=PARTS)

YAML, Python calls and `--help` use the same ranges; metadata has no effect in Python. The dataclasses are standard ones
(`@dataclass(frozen=True)`), not pydantic's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import cycle
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    InstanceOf,
    StrictBool,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema

from domainbert.base.errors import Problems
from domainbert.base.paths import OnHub

_MAX_FLOAT = sys.float_info.max


@dataclass(frozen=True)
class Range:
    """Annotation of a number: it must be from `low` to `high`, and no NaN, infinity or boolean."""

    low: float
    high: float
    exclude_low: bool = False
    exclude_high: bool = False

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate a number of type `kind` strictly ("5" and True are no numbers) and within the bounds."""
        low_key = "gt" if self.exclude_low else "ge"
        high_key = "lt" if self.exclude_high else "le"
        bounds: dict[str, Any] = {low_key: self.low, high_key: self.high}
        return handler(Annotated[kind, Field(strict=True, **bounds), BeforeValidator(as_scalar)])

    def __str__(self) -> str:
        """Return the range for messages: "from 1 to 10", "above 0 and below 1", "that is finite"."""
        low, high = (f"{number:,}" if isinstance(number, int) else f"{number:g}" for number in (self.low, self.high))
        if self.high == _MAX_FLOAT:
            lower_bound = f"above {low}" if self.exclude_low else f"from {low}"
            return "that is finite" if self.low == -_MAX_FLOAT else lower_bound
        if self.exclude_low:
            return f"above {low} and {'below' if self.exclude_high else 'up to'} {high}"
        return f"from {low} to {'below ' if self.exclude_high else ''}{high}"


@dataclass(frozen=True)
class Items:
    """Annotation of a list: it must have one or more items, all different if `unique`."""

    unique: bool = False

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate a list of type `kind`, then that it has items and, if `unique`, no item twice."""
        return handler(Annotated[kind, AfterValidator(self._validated)])

    def _validated(self, items: Sequence[Any]) -> Sequence[Any]:
        if not items or (self.unique and len(set(items)) < len(items)):
            raise ValueError(f"expected a list {self}")
        return items

    def __str__(self) -> str:
        return f"of one or more{' different' if self.unique else ''} items"


PositiveInt = Annotated[int, Range(1, 1_000_000_000)]
Count = Annotated[int, Range(0, 1_000_000_000)]
BatchSize = Annotated[int, Range(1, 1_000_000)]  # examples or rows
Epochs = Annotated[int, Range(1, 1_000_000)]
Length = Annotated[int, Range(3, 1_000_000)]  # tokens of a sequence: [CLS], at least one piece, [SEP]
SampleBytes = Annotated[int, Range(1, 4_000_000_000)]  # pairs, at most one per byte, are counted in 32 bits
Seed = Annotated[int, Range(0, 2**32 - 1)]  # the range of NumPy and torch
Seeds = Annotated[tuple[Seed, ...], Items(unique=True)]  # one training per seed
Column = Annotated[int, Range(-10_000, 10_000)]  # negative numbers count from the end
Fraction = Annotated[float, Range(0, 1)]
Dropout = Annotated[float, Range(0, 1, exclude_high=True)]
PositiveFraction = Annotated[float, Range(0, 1, exclude_low=True)]  # a learning rate, a factor, a share above 0
PositiveFinite = Annotated[float, Range(0, _MAX_FLOAT, exclude_low=True)]
Finite = Annotated[float, Range(-_MAX_FLOAT, _MAX_FLOAT)]
MOST_PROCESSES = 256  # fixed, so that a YAML is valid on one machine if it is valid on another
Workers = Annotated[int, Range(0, MOST_PROCESSES)]  # processes in addition to this one


def as_scalar(value: Any) -> Any:
    """Convert a NumPy or torch scalar to a number and a path to text, for settings given in Python; return other values
    unchanged."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value


def as_plain_list(value: Any) -> Any:
    """Convert a NumPy array or a tensor to a list, or without dimensions to a scalar; return other values unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value


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


def renamed_from(old_name: str) -> dict[str, str]:
    """Return metadata of a renamed setting: for one version YAML and options also accept its old name, with a warning.
    Python constructors accept only the current name."""
    return {"renamed_from": old_name}


def renamed_fields(cls: type) -> dict[str, str]:
    """Return the current names of the renamed fields of a dataclass, by old name."""
    return {item.metadata["renamed_from"]: item.name for item in fields(cls) if "renamed_from" in item.metadata}


LISTS = (list, tuple, Sequence)
"""Types whose values are YAML lists."""

MAPPINGS = (dict, Mapping)
"""Types whose values are YAML mappings with free keys."""

_PLAIN_TYPES: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    NoneType: "null",
    Any: "any value",
}


class CheckedFields:
    """Base of a dataclass that validates its fields with `check_fields` when it is constructed."""

    def __post_init__(self) -> None:
        check_fields(self)


def check_fields(instance: Any) -> None:
    """Raise one `DomainbertError` that lists all fields of a dataclass whose values do not match type and range.

    A field with its default is not checked: the types of all defaults would cost each command 30 ms.
    """
    cls: type = type(instance)
    problems = Problems(cls.__name__)
    for field in fields(instance):
        value = getattr(instance, field.name)
        with problems.collecting():
            if value is not field.default:
                check_value(field.name, value, field_types(cls)[field.name])
    problems.raise_if_any()


def check_value(name: str, value: Any, hint: Any) -> None:
    """Raise a `DomainbertError` that lists all parts of a value that do not match type and range."""
    problems = Problems(name)
    for index, found, expected in type_mismatches(value, hint):
        problems.add(where=f"{name}{index}", found=f"{found!r:.80}", expected=expected)
    problems.raise_if_any()


def read_field(fields: Mapping[str, Any], name: str, hint: Any, default: Any = None) -> Any:
    """Return the value of a key in `config.json`, which must match the type."""
    value = fields.get(name, default)
    check_value(name, value, hint)
    return value


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
        # a mismatch of an item is more exact than a mismatch of the whole list or mapping
        in_items = []
        for member in members:
            for key, item, item_hint in _items_with_hints(value, strip_ranges(member)):
                for index, found, expected in type_mismatches(item, item_hint):
                    in_items.append((f"[{key}]{index}", found, expected))
        return in_items or [("", value, describe_type(hint))]
    return []


def _items_with_hints(value: Any, hint: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (index or key, item, its type) of a list or mapping; nothing for other types."""
    item_hints = [item for item in get_args(hint) if item is not Ellipsis]
    if get_origin(hint) in LISTS and isinstance(value, (list, tuple)):
        entries: Iterable[tuple[Any, Any]] = enumerate(value)
    elif get_origin(hint) in MAPPINGS and isinstance(value, Mapping):
        entries, item_hints = value.items(), item_hints[1:]  # without the type of the keys
    else:
        return
    # `cycle`: a list or mapping has one type for all items, a tuple may have a type for each
    for (key, item), item_hint in zip(entries, cycle(item_hints), strict=False):
        yield key, item, item_hint


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


def describe_type(hint: Any, describe_class: Callable[[type], str] = lambda cls: cls.__name__) -> str:
    """Describe a type with its ranges in words: `int | None` is `an integer or null`. `describe_class` describes a
    dataclass, by default by its name."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    limits = "".join(f" {extra}" for extra in extras if isinstance(extra, (Range, Items, OnHub)))
    hint = strip_ranges(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if is_union(hint):
        return " or ".join(describe_type(member, describe_class) for member in arguments)
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(map(repr, arguments))
    if origin in LISTS:
        has_fixed_length = origin is tuple and arguments[-1] is not Ellipsis
        size = limits or (f" of {len(arguments)} items" if has_fixed_length else "")
        return f"a list{size}, each item {describe_type(arguments[0], describe_class)}"
    if origin in MAPPINGS:
        return f"a mapping, each value {describe_type(arguments[1], describe_class)}"
    return (_PLAIN_TYPES[hint] if hint in _PLAIN_TYPES else describe_class(hint)) + limits


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_shallow_hint(hint))


def _shallow_hint(hint: Any) -> Any:
    """Return the type for pydantic: with strict booleans, text from a path, and an `isinstance` check for each
    dataclass, because an instance has already validated its fields."""
    origin: Any = Union if is_union(hint) else get_origin(hint)
    if origin in (Union, Annotated, *LISTS, *MAPPINGS):
        return origin[tuple(map(_shallow_hint, get_args(hint)))]  # ranges, which are no types, stay unchanged
    if hint is bool:
        return StrictBool  # not "yes" or 1
    if hint is str:
        return Annotated[str, BeforeValidator(as_scalar)]  # a path becomes text
    is_plain = hint in _PLAIN_TYPES or not isinstance(hint, type)  # the other types are dataclasses and their bases
    return hint if is_plain else Annotated[hint, InstanceOf()]
