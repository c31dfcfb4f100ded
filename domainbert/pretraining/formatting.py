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
    """Return lines that show the first `count` rows of a training: the texts as the model reads them, and a table of
    the objective's notes on tokens."""
    samples = ((phase, step, i) for phase in phases for step in phase.steps for i in range(phase.order.batch_size))
    lines, num_steps = list[str](), phases[-1].steps.stop
    for number, (phase, step, i) in enumerate(islice(samples, count), start=1):
        epochs, rows = phase.order.batch(step)
        key = Key(phase.order.seed, step, epochs[i : i + 1], rows[i : i + 1], step / num_steps)
        lines += _format_row(phase.reader, key, number)
    return lines


def _format_row(reader: PackedRowsReader, key: Key, number: int) -> list[str]:
    objective, tokenizer = reader.objective, reader.objective.tokenizer
    rows = objective.read(reader.split, reader.plan, key)
    batch = objective.corrupt(rows, key)
    input_ids: Ints = np.asarray(batch["input_ids"])[0]
    segments = rows.packed.segment_ids[0]
    pieces, notes = format_pieces(tokenizer, input_ids.tolist()), objective.notes(rows, batch)[0]
    documents = ", ".join(map(str, reader.describe(key)["documents"]))
    sizes = f"{int((segments > 0).sum())} of {len(segments)} tokens, of documents {documents}"
    lines = [f"row {number} (step {key.step + 1}, row {int(key.rows[0]):,} of the corpus): {sizes}"]
    for segment in range(1, int(segments.max()) + 1):
        lines += paragraph((pieces[position] for position in np.flatnonzero(segments == segment)), INDENT)
    notes_by_token = [(str(i), str(segments[i]), pieces[i], printable(note)) for i, note in enumerate(notes) if note]
    if not notes_by_token:
        return lines
    return [*lines, *(f"{INDENT}{line}" for line in table([("token", "text", "read as", "note"), *notes_by_token]))]
