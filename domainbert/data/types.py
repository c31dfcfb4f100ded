"""Types of batches, and the share of a batch that each process has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IGNORE_INDEX = -100  # target of a position without a target, the default of `torch.nn.functional.cross_entropy`
SPARE = "spare"  # marks a validation batch that must not be counted
Batch = dict[str, Any]
"""Arrays, tensors and numbers of a batch, by name."""


@dataclass(frozen=True)
class Share:
    """Items of a global batch that a rank computes, in `accumulation` micro-batches per optimiser step."""

    rank: int = 0
    world_size: int = 1
    accumulation: int = 1

    def indices(self, size: int, micro_batch: int) -> NDArray[np.int64]:
        """Return the indices that micro-batch number `micro_batch` has in a global batch of `size` items."""
        return self.select(np.arange(size, dtype=np.int64), micro_batch)

    def micro_batch_size(self, batch_size: int) -> int:
        """Return the number of items of a micro-batch."""
        return batch_size // self.world_size // self.accumulation

    def select(self, items: NDArray[Any], micro_batch: int) -> NDArray[Any]:
        """Return the items of micro-batch number `micro_batch` (below `accumulation`) on this rank."""
        parts = self.world_size * self.accumulation
        return items[self.rank + self.world_size * micro_batch :: parts]
