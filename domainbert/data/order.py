"""The order of training: global batch t is a fixed list of items, given (seed, t)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from domainbert.base.counter_random import permutation

Ints = NDArray[np.int64]
_ORDER = 0  # stream of random numbers; masking has the others


class GlobalOrder:
    """An endless sequence of passes over `size` items, each pass in an order of its own, cut into global batches.

    Batch t does not depend on what was drawn before, on workers or on ranks, so training resumes at any step at once.
    A batch, that of all ranks and accumulated micro-batches, may span the end of a pass: nothing is dropped and nothing
    is repeated within a pass.
    """

    def __init__(self, size: int, batch_size: int, seed: int) -> None:
        self.size, self.batch_size, self.seed = size, batch_size, seed

    def batch(self, step: int) -> tuple[Ints, Ints]:
        """The pass each item of global batch `step` belongs to, and the item; both (batch_size,)."""
        place = np.arange(step * self.batch_size, (step + 1) * self.batch_size, dtype=np.int64)
        epochs, ranks = np.divmod(place, self.size)
        items = np.empty_like(ranks)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            items[here] = _pass(self.size, self.seed, epoch)[ranks[here]]
        return epochs, items


@lru_cache(maxsize=4)
def _pass(size: int, seed: int, epoch: int) -> Ints:
    return permutation(size, seed, _ORDER, epoch)
