"""Types of batches, and the share of a batch that each process has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    pass

IGNORE_INDEX = -100  # target of a position without a target, the default of `torch.nn.functional.cross_entropy`
SPARE = "spare"  # marks a validation batch that must not be counted
Batch = dict[str, Any]


@dataclass(frozen=True)
class Share:
    """Share of a rank in a global batch, of which it computes `accumulation` micro-batches per optimiser step."""

    rank: int = 0
    world_size: int = 1
    accumulation: int = 1

    def places(self, size: int, micro_batch: int) -> NDArray[np.int64]:
        """Indices of the items of `of` in a global batch of `size` items."""
        return self.of(np.arange(size, dtype=np.int64), micro_batch)

    def micro_batch_size(self, batch_size: int) -> int:
        """Number of items of a micro-batch."""
        return batch_size // self.world_size // self.accumulation

    def of(self, items: NDArray[Any], micro_batch: int) -> NDArray[Any]:
        """Select the items of micro-batch number `micro_batch` (below `accumulation`) on this rank."""
        parts = self.world_size * self.accumulation
        return items[self.rank + self.world_size * micro_batch :: parts]
