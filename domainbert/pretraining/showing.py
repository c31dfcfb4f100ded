"""Rows of a corpus as an objective lets the model read them, in lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from domainbert.base.layout import paragraph, printable, table
from domainbert.data.packing import Ints
from domainbert.data.showing import INDENT, shown_pieces
from domainbert.pretraining.batches import PackedRowsReader
from domainbert.pretraining.objective import Key
from domainbert.pretraining.phases import RowPhase


def shown_rows(phases: Sequence[RowPhase], count: int) -> list[str]:
    """The first rows of a training: their texts as they are read, and each token of which the objective has to say."""
    places = ((one, step, at) for one in phases for step in one.steps for at in range(one.order.batch_size))
    lines, num_steps = list[str](), phases[-1].steps.stop
    for number, (phase, step, place) in enumerate(islice(places, count), start=1):
        epochs, rows = phase.order.batch(step)
        key = Key(phase.order.seed, step, epochs[place : place + 1], rows[place : place + 1], step / num_steps)
        lines += _shown(phase.reader, key, number)
    return lines


def _shown(reader: PackedRowsReader, key: Key, number: int) -> list[str]:
    objective, tokenizer = reader.objective, reader.objective.tokenizer
    rows = objective.read(reader.split, reader.plan, key)
    batch = objective.corrupt(rows, key)
    read: Ints = np.asarray(batch["input_ids"])[0]
    segments = rows.packed.segment_ids[0]
    pieces, notes = shown_pieces(tokenizer, read.tolist()), objective.notes(rows, batch)[0]
    documents = ", ".join(map(str, reader.describe(key)["documents"]))
    sizes = f"{int((segments > 0).sum())} of {len(segments)} tokens, of documents {documents}"
    lines = [f"row {number} (step {key.step + 1}, row {int(key.rows[0]):,} of the corpus): {sizes}"]
    for segment in range(1, int(segments.max()) + 1):
        lines += paragraph((pieces[place] for place in np.flatnonzero(segments == segment)), INDENT)
    places = [place for place in range(len(read)) if notes[place]]
    if not places:
        return lines
    told = [(str(place), str(segments[place]), pieces[place], printable(notes[place])) for place in places]
    return [*lines, *(f"{INDENT}{line}" for line in table([("token", "text", "read as", "note"), *told]))]
