"""Ranges of settings, written into their types, so that YAML, calls from Python and `--help` use the same numbers.

batch_size: Annotated[int, Range(1, 1_000_000)]
seeds: Annotated[tuple[Seed, ...], Items(different=True)]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from numbers import Integral, Real
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

from domainbert.base.errors import Problems

_LISTS = (list, tuple, Sequence)
_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; not a number and the infinities are never among them."""

    low: float
    high: float
    above: bool = False  # `low` itself is left out
    below: bool = False  # `high` itself is left out

    def holds(self, value: Any) -> bool:
        """Whether a value is a number in the range."""
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        number: Any = value
        excluded = (self.above and number == self.low) or (self.below and number == self.high)
        return bool(self.low <= number <= self.high and not excluded)

    def __str__(self) -> str:
        if (self.low, self.high) == (-_LARGEST, _LARGEST):
            return "that is finite"
        low, high = _shown(self.low), _shown(self.high)
        if self.high == _LARGEST:
            return f"above {low}" if self.above else f"from {low}"
        if self.above:
            return f"above {low} and {'below' if self.below else 'up to'} {high}"
        return f"from {low} to {'below ' if self.below else ''}{high}"


@dataclass(frozen=True)
class Items:
    """Lists of one item or more."""

    different: bool = False  # no item may occur twice

    def holds(self, value: Any) -> bool:
        """Whether a value is such a list."""
        return len(value) > 0 and not (self.different and any(one in value[:at] for at, one in enumerate(value)))

    def __str__(self) -> str:
        return f"of one or more{' different' if self.different else ''} items"


PositiveInt = Annotated[int, Range(1, 1_000_000_000)]
Count = Annotated[int, Range(0, 1_000_000_000)]
BatchSize = Annotated[int, Range(1, 1_000_000)]  # examples or rows that are computed together
Epochs = Annotated[int, Range(1, 1_000_000)]
Length = Annotated[int, Range(3, 1_000_000)]  # tokens of a sequence: [CLS], at least one piece, [SEP]
SampleBytes = Annotated[int, Range(1, 4_000_000_000)]  # pairs, no more than bytes, are counted in 32 bits
Seed = Annotated[int, Range(0, 2**32 - 1)]  # what NumPy and torch accept
Seeds = Annotated[tuple[Seed, ...], Items(different=True)]  # one training each
Column = Annotated[int, Range(-10_000, 10_000)]  # negative numbers count from the end
Fraction = Annotated[float, Range(0, 1)]
Dropout = Annotated[float, Range(0, 1, below=True)]
PositiveFraction = Annotated[float, Range(0, 1, above=True)]  # a learning rate, a factor, a share that is not none
Finite = Annotated[float, Range(-_LARGEST, _LARGEST)]
MOST_PROCESSES = 256  # the same anywhere, so that a YAML is checked on another machine than it runs on
Workers = Annotated[int, Range(0, MOST_PROCESSES)]  # processes beside this one


def check_fields(instance: object) -> None:
    """Raise an error that names every field of a dataclass that is out of the range in its type."""
    problems = Problems(type(instance).__name__)
    kind: type = type(instance)
    for name, hint in field_types(kind).items():
        for place, found, expected in misfits(getattr(instance, name), hint):
            problems.add(f"{name}{place}: found {found!r}; expected {expected}")
    problems.raise_if_any()


@cache
def field_types(kind: type) -> Mapping[str, Any]:
    """The types of a dataclass' fields, with their ranges."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def misfits(value: Any, hint: Any) -> Iterator[tuple[str, Any, str]]:
    """The parts of a value that are out of range: the place (`[0]`), what was found, what was expected."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, limits = arguments[0], limits_of(hint)
        wrong = kind is int and not isinstance(value, Integral)
        if wrong or not all(limit.holds(value) for limit in limits):
            yield "", value, " ".join([_noun(kind), *map(str, limits)])
        else:
            yield from misfits(value, kind)
    elif origin in (Union, UnionType):
        if isinstance(value, bool) and bool in arguments:
            return
        fitting = [list(misfits(value, member)) for member in arguments if _may_be(value, member)]
        if fitting and all(fitting):
            yield from fitting[0]
    elif origin in _LISTS and isinstance(value, (list, tuple)):
        each = arguments if origin is tuple and arguments[-1] is not Ellipsis else [arguments[0]] * len(value)
        for index, (item, item_hint) in enumerate(zip(value, each, strict=False)):
            yield from ((f"[{index}]{place}", *rest) for place, *rest in misfits(item, item_hint))


def limits_of(hint: Any) -> list[Range | Items]:
    """The limits written into a type itself."""
    found = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return [one for one in found if isinstance(one, (Range, Items))]


def without_limits(hint: Any) -> Any:
    """The type without what `Annotated` adds; the members of a union, too."""
    if get_origin(hint) is Annotated:
        return without_limits(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, map(without_limits, get_args(hint)))
    return hint


def _may_be(value: Any, member: Any) -> bool:
    """Whether a value is a number, or a list, and so is a member of a union."""
    kind = without_limits(member)
    if isinstance(value, Real):
        return kind in (int, float)
    return isinstance(value, (list, tuple)) and get_origin(kind) in _LISTS


def _noun(kind: Any) -> str:
    return "a list" if get_origin(kind) in _LISTS else "an integer" if kind is int else "a number"


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
