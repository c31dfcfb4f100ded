"""Confusion of labels, gold against predicted: one matrix for classes, entities, words, arcs and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NONE = "none"
"""The last label, where something is missed (its column) or spurious (its row); in brackets where a label of the task
is called so."""

Pair = tuple[str | None, str | None]
"""A label of gold and the predicted one in its place; None where there is none."""


def confusion(runs: Sequence[Sequence[Pair]]) -> dict[str, Any]:
    """`labels`, those that occur in any run, sorted, and `counts`: rows of gold with columns of predictions, the mean
    over the runs. So a row adds up to how often gold holds its label, a column to how often it is predicted."""
    occurring = {label for run in runs for pair in run for label in pair}
    kept = sorted(label for label in occurring if label is not None)
    order: list[str | None] = [*kept, *([None] if None in occurring else [])]
    index = {label: number for number, label in enumerate(order)}
    counts = np.zeros((len(runs), len(order), len(order)), dtype=np.int64)  # by run, gold and predicted label
    for matrix, run in zip(counts, runs, strict=True):
        for gold, predicted in run:
            matrix[index[gold], index[predicted]] += 1
    same = (counts == counts[0]).all()
    nothing = NONE
    while nothing in kept:
        nothing = f"({nothing})"
    labels = [nothing if label is None else label for label in order]
    return {"labels": labels, "counts": (counts[0] if same else counts.mean(axis=0)).tolist()}
