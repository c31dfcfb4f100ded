"""Settings of a training in phases of increasing row length. This module does not import torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Items, Length, Range
from domainbert.base.validation import check_fields


@dataclass(frozen=True)
class LengthPhase:
    """A phase of a training with a fixed row length."""

    length: Length
    """Tokens per row, including special tokens; each length must divide the last one."""

    until: Annotated[float, Range(0, 1, exclude_low=True, exclude_high=True)] | None = None
    """Share of the optimiser steps after which the next phase begins; the last phase has none."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)


MaxLength = Length | Annotated[tuple[LengthPhase, ...], Items()]


def phases_of(max_length: MaxLength) -> tuple[LengthPhase, ...]:
    """Return the phases; a single phase if `max_length` is a number."""
    return max_length if isinstance(max_length, tuple) else (LengthPhase(max_length),)


def last_length(max_length: MaxLength | None) -> int | None:
    """Return the longest row length, in tokens: the length of the last phase; None if `max_length` is None."""
    return max_length[-1].length if isinstance(max_length, tuple) else max_length


def phase_problems(phases: Sequence[LengthPhase]) -> Iterator[str]:
    """Yield an error message, with its key, for each inconsistency between phases."""
    *earlier, last = phases
    for number, phase in enumerate(earlier):
        if phase.until is None:
            expected = "the share of the steps after which the next phase begins"
            yield f"max_length[{number}].until: missing; expected {expected}"
        if last.length % phase.length:
            expected = f"a divisor of the last length, {last.length}, so that all steps have equally many tokens"
            yield f"max_length[{number}].length: found {phase.length}; expected {expected}"
    if last.until is not None:
        expected = "none, because the last phase lasts to the end"
        yield f"max_length[{len(earlier)}].until: found {last.until}; expected {expected}"
    for number, (before, phase) in enumerate(itertools.pairwise(phases), start=1):
        if phase.length <= before.length:
            yield f"max_length[{number}].length: found {phase.length}; expected more than before, {before.length}"
        if phase.until is not None and before.until is not None and phase.until <= before.until:
            yield f"max_length[{number}].until: found {phase.until}; expected more than before, {before.until}"


def steps_of_phases(phases: Sequence[LengthPhase], num_steps: int) -> list[range]:
    """Return the optimiser steps (from 0) of each phase in a training of `num_steps`; `until` is rounded to a step.

    Raises `DomainbertError` if a phase has no step.
    """
    ends = [round((phase.until or 1.0) * num_steps) for phase in phases]
    ranges = [range(start, end) for start, end in itertools.pairwise([0, *ends])]
    for number, (phase, steps) in enumerate(zip(phases, ranges, strict=True)):
        if not steps:
            raise DomainbertError(
                f"max_length[{number}]: no step of {num_steps:,} is left for rows of {phase.length} tokens; "
                "expected another until, or a longer budget"
            )
    return ranges
