"""The order of training: global batch t is a fixed list of items, given (seed, t)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from domainbert.base.counter_random import permutation, random_bits

Ints = NDArray[np.int64]
_ORDER = 0  # stream of random numbers; masking has the others
_CLASSES = 1 << 21  # stream of the seeds of classes, far from those of order, masking and dropout


class GlobalOrder:
    """An endless sequence of passes over `size` items, each pass in an order of its own, cut into global batches.

    Batch t does not depend on what was drawn before, on workers or on ranks, so training resumes at any step at once.
    A batch, that of all ranks and accumulated micro-batches, may span the end of a pass: nothing is dropped and nothing
    is repeated within a pass. Batch `first_step` begins the pass numbered `first_pass`.
    """

    def __init__(self, size: int, batch_size: int, seed: int, first_step: int = 0, first_pass: int = 0) -> None:
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.first_step, self.first_pass = first_step, first_pass

    def batch(self, step: int) -> tuple[Ints, Ints]:
        """The pass each item of global batch `step` belongs to, and the item; both (batch_size,)."""
        first = self.first_pass * self.size + (step - self.first_step) * self.batch_size
        place = np.arange(first, first + self.batch_size, dtype=np.int64)
        epochs, ranks = np.divmod(place, self.size)
        items = np.empty_like(ranks)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            items[here] = self.whole_pass(epoch)[ranks[here]]
        return epochs, items

    def whole_pass(self, epoch: int) -> Ints:
        """The items of a pass, in its order: (size,)."""
        return _pass(self.size, self.seed, epoch)


class SharesOrder(GlobalOrder):
    """Passes of as many items as there are, in which each class is drawn in a share of its own.

    A pass has each class exactly so often, but for rounding. Each class goes through passes of its own: after any
    number of batches that end a pass, items of one class have come equally often, but for one time.

    Args:
        classes: (size,) the class of each item, numbered from 0 without a gap.
        shares: (classes,) in any unit.
        batch_size, seed, first_step, first_pass: as of `GlobalOrder`.
    """

    def __init__(
        self,
        classes: Ints,
        shares: NDArray[np.floating],
        batch_size: int,
        seed: int,
        first_step: int = 0,
        first_pass: int = 0,
    ) -> None:
        super().__init__(len(classes), batch_size, seed, first_step, first_pass)
        self.members = [np.flatnonzero(classes == number) for number in range(len(shares))]
        self.draws = whole_shares(shares, self.size)  # (classes,) of each in a pass
        self._drawn: dict[int, Ints] = {}  # the last two passes: a batch may span them

    def batch(self, step: int) -> tuple[Ints, Ints]:
        """The pass over its class that each item of global batch `step` belongs to, and the item; both (batch_size,).

        So what is drawn twice in a pass over all has another number each time, and other tokens are hidden in it.
        """
        _, drawn = super().batch(step)
        epochs, items = np.divmod(drawn, self.size)
        return epochs, items

    def whole_pass(self, epoch: int) -> Ints:
        """The items of a pass, in its order, with `size` added for each pass over their class: (size,)."""
        if epoch not in self._drawn:
            self._drawn = {**dict(list(self._drawn.items())[-1:]), epoch: self._draw(epoch)}
        return self._drawn[epoch]

    def _draw(self, epoch: int) -> Ints:
        parts = []
        for number, (members, draws) in enumerate(zip(self.members, self.draws.tolist(), strict=True)):
            seed = int(random_bits(self.seed, _CLASSES, number))
            epochs, places = GlobalOrder(len(members), draws, seed).batch(epoch)
            parts.append(epochs * self.size + members[places])
        return np.concatenate(parts)[_pass(self.size, self.seed, epoch)]


class BalancedOrder(SharesOrder):
    """Passes in which each class is drawn in proportion to its count to a power.

    With the power 0 all classes are drawn equally often, with 1 as often as they occur; Conneau and Lample (2019,
    section 3.1) draw languages so, and take 0.5.

    Args:
        classes, batch_size, seed: as of `SharesOrder`.
        power: from 0 to 1.
    """

    def __init__(self, classes: Ints, power: float, batch_size: int, seed: int) -> None:
        super().__init__(classes, np.bincount(classes) ** power, batch_size, seed)


def whole_shares(shares: NDArray[np.floating], total: int) -> Ints:
    """Whole numbers in proportion to `shares`, with the sum `total`: the largest remainders are rounded up."""
    exact = shares * (total / shares.sum())
    found = np.floor(exact).astype(np.int64)
    largest = np.argsort(found - exact, kind="stable")[: total - int(found.sum())]
    found[largest] += 1
    return found


@lru_cache(maxsize=4)
def _pass(size: int, seed: int, epoch: int) -> Ints:
    return permutation(size, seed, _ORDER, epoch)
