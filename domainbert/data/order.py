"""The order of training: global batch t is a fixed list of items, given (seed, t)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.base.counter_random import permutation, permuted, random_bits

Ints = NDArray[np.int64]
_ORDER = 0  # stream of random numbers; masking has the others
_WINDOWS = 1 << 22  # stream of the order of parts, and of the rows of each window
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
        epochs, ranks = self._places(step)
        items = np.empty_like(ranks)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            items[here] = self.whole_pass(epoch)[ranks[here]]
        return epochs, items

    def whole_pass(self, epoch: int) -> Ints:
        """The items of a pass, in its order: (size,)."""
        return _pass(self.size, self.seed, epoch)

    def _places(self, step: int) -> tuple[Ints, Ints]:
        """The pass of each item of a global batch, and its place in it; both (batch_size,)."""
        first = self.first_pass * self.size + (step - self.first_step) * self.batch_size
        epochs, places = np.divmod(np.arange(first, first + self.batch_size, dtype=np.int64), self.size)
        return epochs, places


class WindowedOrder(GlobalOrder):
    """Passes over a corpus of parts that may be too large for a list of its items.

    A pass takes the parts in an order of its own, a window of so many at a time, and mixes the items of a window. Any
    place of a pass is found without the others (see `permuted`), so memory does not grow with the items, and only the
    files of one window, or two where a batch spans them, have to be at hand.

    Args:
        sizes: (parts,) items of each part; they are numbered part by part.
        window: parts that are mixed.
        batch_size, seed, first_step, first_pass: as of `GlobalOrder`.
    """

    def __init__(
        self, sizes: Ints, window: int, batch_size: int, seed: int, first_step: int = 0, first_pass: int = 0
    ) -> None:
        super().__init__(int(sizes.sum()), batch_size, seed, first_step, first_pass)
        self.sizes, self.window = sizes, window
        self.firsts = np.cumsum(sizes) - sizes  # (parts,) the first item of each
        self._drawn: dict[int, tuple[Ints, Ints]] = {}  # windows of the last two passes: a batch may span them

    @override
    def batch(self, step: int) -> tuple[Ints, Ints]:
        epochs, places = self._places(step)
        items = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            items[here] = self._items(epoch, places[here])
        return epochs, items

    @override
    def whole_pass(self, epoch: int) -> Ints:
        """All items of a pass, in order; for tests, since it holds them in memory."""
        return self._items(epoch, np.arange(self.size))

    def _items(self, epoch: int, places: Ints) -> Ints:
        parts, starts = self._windows(epoch)
        windows = np.searchsorted(starts, places, side="right") - 1
        items = np.empty_like(places)
        for number in np.unique(windows).tolist():
            here = windows == number
            members = parts[self.window * number : self.window * (number + 1)]
            stops = np.cumsum(self.sizes[members])
            mixed = permuted(places[here] - starts[number], int(stops[-1]), self.seed, _WINDOWS, epoch, number + 1)
            owners = np.searchsorted(stops, mixed, side="right")
            items[here] = self.firsts[members][owners] + mixed - (stops - self.sizes[members])[owners]
        return items

    def _windows(self, epoch: int) -> tuple[Ints, Ints]:
        """The parts in the order of a pass (parts,), and the place in it where each window begins (windows,)."""
        if epoch not in self._drawn:
            parts = permutation(len(self.sizes), self.seed, _WINDOWS, epoch, 0)
            totals = np.add.reduceat(self.sizes[parts], np.arange(0, len(parts), self.window))
            drawn = {epoch: (parts, np.cumsum(totals) - totals)}
            self._drawn = {**dict(list(self._drawn.items())[-1:]), **drawn}
        return self._drawn[epoch]


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
