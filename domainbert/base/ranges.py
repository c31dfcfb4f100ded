"""Ranges of settings as type annotations, so that YAML, Python calls and `--help` use the same limits.

batch_size: Annotated[int, Range(1, 1_000_000)]
seeds: Annotated[tuple[Seed, ...], Items(different=True)]

`base/validation.py` checks values against them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, without NaN, infinities and booleans."""

    low: float
    high: float
    above: bool = False  # `low` itself is excluded
    below: bool = False  # `high` itself is excluded

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        ends: dict[str, Any] = {"gt" if self.above else "ge": self.low, "lt" if self.below else "le": self.high}
        return handler(Annotated[kind, Field(strict=True, **ends), BeforeValidator(as_scalar)])

    def __str__(self) -> str:
        low, high = (f"{number:,}" if isinstance(number, int) else f"{number:g}" for number in (self.low, self.high))
        if self.high == _LARGEST:
            return "that is finite" if self.low == -_LARGEST else f"{'above' if self.above else 'from'} {low}"
        if self.above:
            return f"above {low} and {'below' if self.below else 'up to'} {high}"
        return f"from {low} to {'below ' if self.below else ''}{high}"


@dataclass(frozen=True)
class Items:
    """Lists of one or more items."""

    different: bool = False  # items must be unique

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(Annotated[kind, AfterValidator(self._validated)])

    def _validated(self, items: Sequence[Any]) -> Sequence[Any]:
        if not items or (self.different and any(item in items[:index] for index, item in enumerate(items))):
            raise ValueError(f"expected a list {self}")
        return items

    def __str__(self) -> str:
        return f"of one or more{' different' if self.different else ''} items"


PositiveInt = Annotated[int, Range(1, 1_000_000_000)]
Count = Annotated[int, Range(0, 1_000_000_000)]
BatchSize = Annotated[int, Range(1, 1_000_000)]  # examples or rows
Epochs = Annotated[int, Range(1, 1_000_000)]
Length = Annotated[int, Range(3, 1_000_000)]  # tokens of a sequence: [CLS], at least one piece, [SEP]
SampleBytes = Annotated[int, Range(1, 4_000_000_000)]  # pairs, at most one per byte, are counted in 32 bits
Seed = Annotated[int, Range(0, 2**32 - 1)]  # the range of NumPy and torch
Seeds = Annotated[tuple[Seed, ...], Items(different=True)]  # one training per seed
Column = Annotated[int, Range(-10_000, 10_000)]  # negative numbers count from the end
Fraction = Annotated[float, Range(0, 1)]
Dropout = Annotated[float, Range(0, 1, below=True)]
PositiveFraction = Annotated[float, Range(0, 1, above=True)]  # a learning rate, a factor, a share above 0
Finite = Annotated[float, Range(-_LARGEST, _LARGEST)]
MOST_PROCESSES = 256  # fixed, so that a YAML is valid on one machine if it is valid on another
Workers = Annotated[int, Range(0, MOST_PROCESSES)]  # processes in addition to this one


def as_scalar(value: Any) -> Any:
    """Convert a NumPy or torch scalar to a number and a path to text, for settings given in Python."""
    return str(value) if isinstance(value, Path) else value.item() if hasattr(value, "item") else value
