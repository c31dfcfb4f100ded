"""Training in phases of increasing row length: each phase has its own row layout, order and passes.

Passes are numbered over the whole training, so the (pass, row) keys that masks are drawn by are unique. Sampled
languages number their passes separately; a row in another phase, with another text, may then have the same key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from torch.utils.data import Dataset

from domainbert.base.layout import paragraph
from domainbert.base.table import Table
from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.formatting import INDENT, format_pieces
from domainbert.data.packing import Batch, Ints
from domainbert.pretraining.batches import PackedRowsReader, TrainRows
from domainbert.pretraining.objective import Key
from domainbert.training.steps import Phase


class RowPhase(NamedTuple):
    """A phase of a training: its optimiser steps, numbered from the start of the training, and its rows."""

    steps: range
    reader: PackedRowsReader
    order: GlobalOrder

    @property
    def rows_read(self) -> int:
        """Number of rows in all steps of the phase."""
        return len(self.steps) * self.order.batch_size


def row_phases(readers: Sequence[PackedRowsReader], phases: Sequence[Phase], seed: int) -> list[RowPhase]:
    """Return the phases with their readers, and with an order of rows; passes are numbered over all phases."""
    planned, first_pass = list[RowPhase](), 0
    for phase, reader in zip(phases, readers, strict=True):
        order = reader.order(phase.batch_size, seed, phase.steps.start, first_pass)
        planned.append(RowPhase(phase.steps, reader, order))
        first_pass += math.ceil(phase.items_seen / phase.num_items)  # the last pass may be incomplete
    return planned


def tokens_seen(phases: Sequence[RowPhase]) -> int:
    """Return the number of training tokens, without special tokens and padding."""
    return round(sum(phase.rows_read * phase.reader.tokens_per_pass / phase.reader.plan.num_rows for phase in phases))


def phase_of(phases: Sequence[RowPhase], step: int) -> RowPhase:
    """Return the phase of an optimiser step."""
    return next(phase for phase in phases if step in phase.steps)


def summary_lines(phases: Sequence[RowPhase]) -> list[str]:
    """Return a line per phase for the terminal: its rows and, if there are several phases, its steps."""
    lines = []
    for phase in phases:
        steps = phase.steps
        prefix = f"steps {steps.start + 1:,} to {steps.stop:,} of {phase.order.batch_size}: "
        lines.append((prefix if len(phases) > 1 else "") + phase.reader.plan.summary)
    return lines


def most_texts(phase: RowPhase, share: Share) -> int:
    """Return the largest expected number of segments in a micro-batch of a phase: texts, and the padding of each row.

    A micro-batch with the same row twice, from two passes, may exceed it, and so may one of a corpus in parts: its
    shape is then compiled separately.
    """
    num_rows = share.micro_batch_size(phase.order.batch_size)
    return num_rows + phase.reader.plan.most_pieces(num_rows)


class PhasedRows(Dataset[Batch]):
    """Training micro-batches with random access, each from the phase of its step.

    Args:
        phases: all phases of the training.
        share, steps: as in `TrainRows`.
        wrap: adds to the micro-batches of a phase; None keeps them.
    """

    def __init__(
        self,
        phases: Sequence[RowPhase],
        share: Share,
        steps: range,
        wrap: Callable[[TrainRows], Dataset[Batch]] | None = None,
    ) -> None:
        self.phases, self.share, self.steps = phases, share, steps
        rows = {phase.steps: TrainRows(phase.reader, phase.order, share, steps) for phase in phases}
        self.rows = {phase_steps: wrap(train_rows) if wrap else train_rows for phase_steps, train_rows in rows.items()}

    @property
    def most_texts(self) -> int:
        """Largest expected number of segments in a micro-batch."""
        return max(most_texts(phase, self.share) for phase in self.phases)

    def __len__(self) -> int:
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        step = self.steps[index // self.share.accumulation]
        rows_of_phase = next(rows for steps, rows in self.rows.items() if step in steps)
        return rows_of_phase[index]


def format_rows(phases: Sequence[RowPhase], count: int) -> list[str]:
    """Return lines that show the first `count` rows of a training: the texts as the model reads them, and a table of
    the objective's notes on tokens."""
    # all rows of the training, in order: row `i` of the batch of a step
    batch_rows = ((phase, step, i) for phase in phases for step in phase.steps for i in range(phase.order.batch_size))
    num_steps = phases[-1].steps.stop
    lines: list[str] = []
    for number, (phase, step, i) in enumerate(islice(batch_rows, count), start=1):
        epochs, rows = phase.order.batch(step)
        key = Key(phase.order.seed, step, epochs[i : i + 1], rows[i : i + 1], progress=step / num_steps)
        lines += _format_row(phase.reader, key, number)
    return lines


def _format_row(reader: PackedRowsReader, key: Key, number: int) -> list[str]:
    objective, tokenizer = reader.objective, reader.objective.tokenizer
    rows = objective.read(reader.split, reader.plan, key)
    batch = objective.corrupt(rows, key)
    input_ids: Ints = np.asarray(batch["input_ids"])[0]  # the key has one row
    segments = rows.packed.segment_ids[0]
    pieces = format_pieces(tokenizer, input_ids.tolist())
    (notes,) = objective.notes(rows, batch)
    documents = ", ".join(map(str, reader.describe(key)["documents"]))
    sizes = f"{int((segments > 0).sum())} of {len(segments)} tokens, of documents {documents}"
    lines = [f"row {number} (step {key.step + 1}, row {int(key.rows[0]):,} of the corpus): {sizes}"]
    for segment in range(1, int(segments.max()) + 1):  # 0 is padding
        lines += paragraph((pieces[position] for position in np.flatnonzero(segments == segment)), INDENT)
    notes_by_token = [(str(i), str(segments[i]), pieces[i], note) for i, note in enumerate(notes) if note]
    table = Table(["token", "text", "read as", "note"], notes_by_token)
    return lines + [f"{INDENT}{line}" for line in table.lines() if notes_by_token]
