"""Length of a training: its phases of steps with one row length, and when it validates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from domainbert.training.config import CorpusTraining
from domainbert.training.length_phases import LengthPhase, rows_per_step, steps_of_phases

_VALIDATIONS = 10  # default number of validations


@dataclass(frozen=True)
class Phase:
    """Consecutive optimiser steps of a training with one batch size and one row length."""

    steps: range  # numbered from the start of the training, from 0
    batch_size: int  # rows or examples per step, over all devices
    num_items: int  # rows or examples of the training set

    @property
    def items_seen(self) -> int:
        """Number of rows or examples in all steps of the phase."""
        return len(self.steps) * self.batch_size


def phases_of_training(
    lengths: Sequence[LengthPhase], batch_size: int, num_steps: int, num_rows: Sequence[int]
) -> list[Phase]:
    """Return the phases of a training of `num_steps` optimiser steps.

    `batch_size` are the rows of a step in the last phase, `num_rows` the rows of a pass in each phase.
    """
    steps = steps_of_phases(lengths, num_steps)
    batch_sizes = rows_per_step(lengths, batch_size)
    return [Phase(*phase) for phase in zip(steps, batch_sizes, num_rows, strict=True)]


@dataclass(frozen=True)
class Steps:
    """Length of a training in optimiser steps, and when it validates."""

    phases: tuple[Phase, ...]  # in order; a single phase for a fixed row length
    validate_every: int  # steps between validations
    validate_first: bool = False  # also validate before the first step
    num_epochs: int | None = None  # None if a batch may have items of two passes

    @classmethod
    def of_epochs(cls, num_epochs: int, batch_size: int, num_items: int) -> Steps:
        """Return the steps of `num_epochs` passes over the training set, with a validation after each."""
        steps_per_epoch = math.ceil(num_items / batch_size)
        phase = Phase(range(steps_per_epoch * num_epochs), batch_size, num_items)
        return cls((phase,), validate_every=steps_per_epoch, num_epochs=num_epochs)

    @classmethod
    def of_budget(
        cls,
        settings: CorpusTraining,
        num_rows: Sequence[int],
        num_tokens: Sequence[float],
        validate_first: bool = False,
    ) -> Steps:
        """Return the steps of a budget, with at most ten validations by default.

        `num_rows` and `num_tokens` (without special tokens and padding) are the rows and tokens of a pass in each
        phase.
        """
        total = settings.num_steps(num_rows, num_tokens)
        every = settings.validate_every or math.ceil(total / _VALIDATIONS)
        phases = phases_of_training(settings.phases, settings.batch_size, total, num_rows)
        return cls(tuple(phases), every, validate_first)

    @property
    def total(self) -> int:
        """Number of steps of all phases."""
        return self.phases[-1].steps.stop

    @property
    def starts(self) -> list[int]:
        """First step of each phase."""
        return [phase.steps.start for phase in self.phases]

    def __str__(self) -> str:
        """Return the numbers of steps and epochs as text."""
        passes = f"{sum(phase.items_seen / phase.num_items for phase in self.phases):.2f}"
        if len(self.phases) > 1:
            return f"{self.total:,} steps in {len(self.phases)} phases, {passes} epochs"
        (phase,) = self.phases
        epochs = passes if self.num_epochs is None else self.num_epochs
        return f"{self.total:,} steps of {phase.batch_size}, {epochs} epochs of {phase.num_items:,}"
