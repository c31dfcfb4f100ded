"""Share of the items that are right as a whole, by their number of words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LENGTHS = ("0-8", "9-16", "17-32", "33-64", "65-128", "129-256", ">256")
_LONGEST = (8, 16, 32, 64, 128, 256)  # words of the longest item of each but the last


def right_by_words(words: Sequence[int], runs: Sequence[Sequence[bool]]) -> dict[str, dict[str, float]]:
    """The `support` of each of `LENGTHS` that occurs, and the share of it that is `right`, the mean over the runs.

    `words` (items,) are the lengths of items, and a run says of each of them whether it is right.
    """
    places = np.searchsorted(_LONGEST, words)
    share = np.mean(np.asarray(runs, dtype=np.float64), axis=0)
    return {
        name: {"support": int((places == number).sum()), "right": float(share[places == number].mean())}
        for number, name in enumerate(LENGTHS)
        if (places == number).any()
    }
