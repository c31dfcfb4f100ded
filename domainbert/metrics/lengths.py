"""Share of correct items by number of words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LENGTHS = ("0-8", "9-16", "17-32", "33-64", "65-128", "129-256", ">256")
"""Groups of items by number of words."""

_MAX_WORDS = (8, 16, 32, 64, 128, 256)  # maximum words of each group except the last


def accuracy_by_length(words: Sequence[int], runs: Sequence[Sequence[bool]]) -> dict[str, dict[str, float]]:
    """Return `support` (number of items) and `right` (share of correct items, mean of runs) of each length group.

    `words` (items,) are the lengths of the items; each run has, for each item, whether it is correct.
    """
    groups = np.searchsorted(_MAX_WORDS, words)
    share = np.mean(np.asarray(runs, dtype=np.float64), axis=0)
    return {
        LENGTHS[group]: {"support": int((groups == group).sum()), "right": float(share[groups == group].mean())}
        for group in np.unique(groups).tolist()
    }
