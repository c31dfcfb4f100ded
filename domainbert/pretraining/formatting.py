"""Formats rows of a corpus, as an objective corrupts them, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from domainbert.base.layout import paragraph, printable, table
from domainbert.data.formatting import INDENT, format_pieces
from domainbert.data.packing import Ints
from domainbert.pretraining.batches import PackedRowsReader
from domainbert.pretraining.objective import Key
from domainbert.pretraining.phases import RowPhase


def format_rows(phases: Sequence[RowPhase], count: int) -> list[str]:
    """Format the first `count` rows of a training: the texts as read by the model, and the objective's notes."""
    samples = ((phase, step, at) for phase in phases for step in phase.steps for at in range(phase.order.batch_size))
    lines, num_steps = list[str](), phases[-1].steps.stop
    for number, (phase, step, at) in enumerate(islice(samples, count), start=1):
        epochs, rows = phase.order.batch(step)
        key = Key(phase.order.seed, step, epochs[at : at + 1], rows[at : at + 1], step / num_steps)
        lines += _shown(phase.reader, key, number)
    return lines


def _shown(reader: PackedRowsReader, key: Key, number: int) -> list[str]:
    objective, tokenizer = reader.objective, reader.objective.tokenizer
    rows = objective.read(reader.split, reader.plan, key)
    batch = objective.corrupt(rows, key)
    read: Ints = np.asarray(batch["input_ids"])[0]
    segments = rows.packed.segment_ids[0]
    pieces, notes = format_pieces(tokenizer, read.tolist()), objective.notes(rows, batch)[0]
    documents = ", ".join(map(str, reader.describe(key)["documents"]))
    sizes = f"{int((segments > 0).sum())} of {len(segments)} tokens, of documents {documents}"
    lines = [f"row {number} (step {key.step + 1}, row {int(key.rows[0]):,} of the corpus): {sizes}"]
    for segment in range(1, int(segments.max()) + 1):
        lines += paragraph((pieces[position] for position in np.flatnonzero(segments == segment)), INDENT)
    noted = [(str(at), str(segments[at]), pieces[at], printable(note)) for at, note in enumerate(notes) if note]
    if not noted:
        return lines
    return [*lines, *(f"{INDENT}{line}" for line in table([("token", "text", "read as", "note"), *noted]))]
