"""Confusion matrix of gold and predicted labels of classes, entities, words, arcs or answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NONE = "none"
"""Name of the last label: its column counts missed items, its row spurious items. In brackets if a label has this
name."""

Pair = tuple[str | None, str | None]
"""Gold label and predicted label; None if there is none."""


def confusion(runs: Sequence[Sequence[Pair]]) -> dict[str, Any]:
    """Return the confusion matrix of runs: `labels` (sorted, all that occur in any run) and `counts`.

    `counts[i][j]` is the number of items with gold label i and predicted label j, mean of the runs. So the sum of a row
    is the number of gold items, the sum of a column the number of predicted items.
    """
    occurring = {label for run in runs for pair in run for label in pair}
    names = sorted(label for label in occurring if label is not None)
    order: list[str | None] = [*names, *([None] if None in occurring else [])]
    index = {label: number for number, label in enumerate(order)}
    counts = np.zeros((len(runs), len(order), len(order)), dtype=np.int64)  # run, gold, predicted
    for matrix, run in zip(counts, runs, strict=True):
        for gold, predicted in run:
            matrix[index[gold], index[predicted]] += 1
    runs_are_equal = (counts == counts[0]).all()
    none_label = NONE
    while none_label in names:
        none_label = f"({none_label})"
    labels = [none_label if label is None else label for label in order]
    return {"labels": labels, "counts": (counts[0] if runs_are_equal else counts.mean(axis=0)).tolist()}
