"""Ranges of settings as type annotations, so that YAML, Python calls and `--help` use the same limits.

batch_size: Annotated[int, Range(1, 1_000_000)]
seeds: Annotated[tuple[Seed, ...], Items(unique=True)]

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
        low, high = "gt" if self.exclude_low else "ge", "lt" if self.exclude_high else "le"
        bounds: dict[str, Any] = {low: self.low, high: self.high}
        return handler(Annotated[kind, Field(strict=True, **bounds), BeforeValidator(as_scalar)])

    def __str__(self) -> str:
        low, high = (f"{number:,}" if isinstance(number, int) else f"{number:g}" for number in (self.low, self.high))
        if self.high == _MAX_FLOAT:
            return "that is finite" if self.low == -_MAX_FLOAT else f"{'above' if self.exclude_low else 'from'} {low}"
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
        if not items or (self.unique and any(item in items[:index] for index, item in enumerate(items))):
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
Finite = Annotated[float, Range(-_MAX_FLOAT, _MAX_FLOAT)]
MOST_PROCESSES = 256  # fixed, so that a YAML is valid on one machine if it is valid on another
Workers = Annotated[int, Range(0, MOST_PROCESSES)]  # processes in addition to this one


def as_scalar(value: Any) -> Any:
    """Convert a NumPy or torch scalar to a number and a path to text, for settings given in Python; return other values
    unchanged."""
    return str(value) if isinstance(value, Path) else value.item() if hasattr(value, "item") else value
