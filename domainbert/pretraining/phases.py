"""A training whose rows grow longer: each phase has a plan of the corpus, an order and passes of its own.

Passes are numbered through the training, so no two rows of it have the same (pass, row) to draw their masks by. Where
languages have passes of their own, numbered one by one, a row of another phase, with another text, may have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Dataset

from domainbert.data.order import GlobalOrder
from domainbert.data.splits import PreparedSplit
from domainbert.data.types import Batch, Share
from domainbert.pretraining.batches import PackedRowsReader, TrainRows
from domainbert.pretraining.objective import Objective
from domainbert.training.config import CorpusTraining
from domainbert.training.fit import Phase, Steps


class RowPhase(NamedTuple):
    """A phase of a training: its optimiser steps, numbered from the first of the training, and its rows."""

    steps: range
    reader: PackedRowsReader
    order: GlobalOrder

    @property
    def rows_read(self) -> int:
        """Rows of all its steps."""
        return len(self.steps) * self.order.batch_size


def plan_phases(
    split: PreparedSplit, objective: Objective[Any], settings: CorpusTraining, seed: int, validate_first: bool = False
) -> tuple[list[RowPhase], Steps]:
    """The phases of a training on a split, and its steps; `DomainbertError` where a phase has none."""
    readers = [PackedRowsReader(split, objective, phase.length) for phase in settings.phases]
    num_rows, num_tokens = zip(*((reader.plan.num_rows, reader.tokens_per_pass) for reader in readers), strict=True)
    steps = Steps.of_budget(settings, num_rows, num_tokens, validate_first)
    return row_phases(readers, steps.phases, seed), steps


def row_phases(readers: Sequence[PackedRowsReader], phases: Sequence[Phase], seed: int) -> list[RowPhase]:
    """The phases of a training with their rows, each in an order of its own."""
    found, passes = list[RowPhase](), 0
    for phase, reader in zip(phases, readers, strict=True):
        order = reader.order(phase.batch_size, seed, phase.steps.start, passes)
        found.append(RowPhase(phase.steps, reader, order))
        passes += -(-phase.items_seen // phase.num_items)
    return found


def tokens_seen(phases: Sequence[RowPhase]) -> int:
    """Tokens that a training reads, special tokens and padding apart."""
    return round(sum(phase.rows_read * phase.reader.tokens_per_pass / phase.reader.plan.num_rows for phase in phases))


def phase_of(phases: Sequence[RowPhase], step: int) -> RowPhase:
    """The phase that an optimiser step belongs to."""
    return next(phase for phase in phases if step in phase.steps)


def described(phases: Sequence[RowPhase]) -> list[str]:
    """A line for each phase: its rows and, if it is not the only one, its steps."""
    lines = []
    for phase in phases:
        steps, rows = phase.steps, phase.reader.plan.summary
        when = f"steps {steps.start + 1:,} to {steps.stop:,} of {phase.order.batch_size}: "
        lines.append((when if len(phases) > 1 else "") + rows)
    return lines


def most_texts(phase: RowPhase, share: Share) -> int:
    """Return how many segments a micro-batch of a phase has at most: texts, and the padding of each row."""
    rows = share.micro_batch_size(phase.order.batch_size)
    texts = np.diff(phase.reader.plan.row_offsets)
    return rows + int(np.partition(texts, -rows)[-rows:].sum() if len(texts) > rows else texts.max() * rows)


class PhasedRows(Dataset[Batch]):
    """Micro-batch i of training, for any i: that of the phase which its step belongs to.

    Args:
        phases: of the whole training.
        share, steps: as of `TrainRows`.
        batches: makes what is read of the micro-batches of a phase.
    """

    def __init__(
        self,
        phases: Sequence[RowPhase],
        share: Share,
        steps: range,
        batches: Callable[[TrainRows], Dataset[Batch]] = lambda rows: rows,
    ) -> None:
        self.phases, self.share, self.steps = phases, share, steps
        self.rows = {phase.steps: batches(TrainRows(phase.reader, phase.order, share, steps)) for phase in phases}

    @property
    def most_texts(self) -> int:
        """Texts in a micro-batch at most, and the padding at the end of its rows."""
        return max(most_texts(phase, self.share) for phase in self.phases)

    def __len__(self) -> int:
        """Micro-batches of all the steps."""
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        """Micro-batch `index`, as `TrainRows` has it."""
        step = self.steps[index // self.share.accumulation]
        return next(rows for steps, rows in self.rows.items() if step in steps)[index]
