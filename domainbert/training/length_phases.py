"""Row lengths of a training on a corpus, which may grow in phases. Imports no torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.fields import CheckedFields, Items, Length, Range


@dataclass(frozen=True)
class LengthPhase(CheckedFields):
    """A phase of a training with a fixed row length."""

    length: Length
    """Tokens per row, including special tokens; each length must divide the last one."""

    until: Annotated[float, Range(0, 1, exclude_low=True, exclude_high=True)] | None = None
    """Share of the optimiser steps after which the next phase begins; the last phase has none."""


MaxLength = Length | Annotated[tuple[LengthPhase, ...], Items()]


def phases_of(max_length: MaxLength) -> tuple[LengthPhase, ...]:
    """Return the phases; a single phase if `max_length` is a number."""
    return max_length if isinstance(max_length, tuple) else (LengthPhase(max_length),)


def last_length(max_length: MaxLength | None) -> int | None:
    """Return the longest row length, in tokens: the length of the last phase; None if `max_length` is None."""
    return max_length[-1].length if isinstance(max_length, tuple) else max_length


def check_phases(phases: Sequence[LengthPhase], subject: str) -> None:
    """Raise `DomainbertError` if phases are inconsistent; several problems are listed under `subject`."""
    problems = Problems(subject)
    *earlier, last = phases
    for number, phase in enumerate(earlier):
        if phase.until is None:
            expected = "a share of the steps, such as 0.9, after which the next phase begins"
            problems.add("missing", where=f"max_length[{number}].until", expected=expected)
        if last.length % phase.length:
            expected = f"a divisor of the last length, {last.length}, so that all steps have equally many tokens"
            problems.add(where=f"max_length[{number}].length", found=phase.length, expected=expected)
    if last.until is not None:
        expected = "no `until` in the last phase, which lasts to the end of the training"
        problems.add(where=f"max_length[{len(earlier)}].until", found=last.until, expected=expected)
    for number, (before, phase) in enumerate(itertools.pairwise(phases), start=1):
        if phase.length <= before.length:
            expected = f"more than in the previous phase, {before.length}"
            problems.add(where=f"max_length[{number}].length", found=phase.length, expected=expected)
        if phase.until is not None and before.until is not None and phase.until <= before.until:
            expected = f"more than in the previous phase, {before.until}"
            problems.add(where=f"max_length[{number}].until", found=phase.until, expected=expected)
    problems.raise_if_any()


def rows_per_step(phases: Sequence[LengthPhase], batch_size: int) -> list[int]:
    """Return the rows of an optimiser step in each phase: `batch_size` in the last phase, more in phases with shorter
    rows, so that all steps have equally many tokens, padding included."""
    # `//` is exact: `check_phases` rejects a length that does not divide the last
    return [batch_size * (phases[-1].length // phase.length) for phase in phases]


def steps_of_phases(phases: Sequence[LengthPhase], num_steps: int) -> list[range]:
    """Return the optimiser steps (from 0) of each phase in a training of `num_steps`.

    `until`, a share of all steps, is rounded to a step; the last phase has none and ends with the training. Raises
    `DomainbertError` if a phase has no step.
    """
    ends = [round((phase.until or 1.0) * num_steps) for phase in phases]
    ranges = [range(start, end) for start, end in itertools.pairwise([0, *ends])]
    for number, (phase, steps) in enumerate(zip(phases, ranges, strict=True)):
        if not steps:
            raise DomainbertError(
                where=f"max_length[{number}]",
                found=f"0 steps (of {num_steps:,}) for rows of {phase.length} tokens",
                expected="values of `until` that differ more, or a longer `budget`",
            )
    return ranges
