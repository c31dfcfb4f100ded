"""The order of training: global batch t is a pure function of (seed, t)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.base.counter_random import permutation, permute_indices, random_bits

Ints = NDArray[np.int64]
_ORDER = 0  # stream of random numbers; masking uses other streams
_WINDOWS = 1 << 22  # stream for the order of parts and of the rows of each window
_CLASSES = 1 << 21  # stream for the seeds of classes, distinct from order, masking and dropout


class GlobalOrder:
    """An endless sequence of passes over `size` items, each pass in a new random order, cut into global batches.

    Batch t does not depend on earlier batches, workers or ranks, so training resumes at any step immediately. A global
    batch (all ranks and accumulated micro-batches) may extend over the end of a pass: within a pass no item is dropped
    or repeated. Batch `first_step` begins pass number `first_pass`.
    """

    def __init__(self, size: int, batch_size: int, seed: int, first_step: int = 0, first_pass: int = 0) -> None:
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.first_step, self.first_pass = first_step, first_pass

    def batch(self, step: int) -> tuple[Ints, Ints]:
        """Return the pass number and the index of each item of global batch `step`; both (batch_size,)."""
        epochs, positions = self._positions(step)
        items = np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            selected = epochs == epoch
            items[selected] = self._items(epoch, positions[selected])
        return epochs, items

    def whole_pass(self, epoch: int) -> Ints:
        """Return the items of pass number `epoch` in order: (size,)."""
        return _shuffled_items(self.size, self.seed, epoch)

    def _items(self, epoch: int, positions: Ints) -> Ints:
        """Return the items at some positions of a pass."""
        return self.whole_pass(epoch)[positions]

    def _positions(self, step: int) -> tuple[Ints, Ints]:
        """Return the pass number of each item of a global batch, and its position in the pass; both (batch_size,)."""
        first = self.first_pass * self.size + (step - self.first_step) * self.batch_size
        epochs, positions = np.divmod(np.arange(first, first + self.batch_size, dtype=np.int64), self.size)
        return epochs, positions


class WindowedOrder(GlobalOrder):
    """Passes over a corpus in parts that may be too large for a list of its items.

    A pass shuffles the parts and takes `window` parts at a time, whose items are mixed. Each position of a pass is
    computed independently (see `permute_indices`), so memory does not grow with the number of items, and only the files
    of one window, or of two for a batch that extends over both, are needed.

    Args:
        sizes: (parts,) number of items of each part; items are numbered part by part.
        window: number of parts to mix.
        batch_size, seed, first_step, first_pass: see `GlobalOrder`.
    """

    def __init__(
        self, sizes: Ints, window: int, batch_size: int, seed: int, first_step: int = 0, first_pass: int = 0
    ) -> None:
        super().__init__(int(sizes.sum()), batch_size, seed, first_step, first_pass)
        self.sizes, self.window = sizes, window
        self.firsts = np.cumsum(sizes) - sizes  # (parts,) first item of each part
        self._cache: dict[int, tuple[Ints, Ints]] = {}  # windows of the last two passes: a batch may contain both

    @override
    def whole_pass(self, epoch: int) -> Ints:
        """Return all items of a pass in order; for tests, as they may not fit in memory."""
        return self._items(epoch, np.arange(self.size))

    @override
    def _items(self, epoch: int, positions: Ints) -> Ints:
        parts, starts = self._windows(epoch)  # in the order of the pass; starts of windows
        windows = np.searchsorted(starts, positions, side="right") - 1
        items = np.empty_like(positions)
        for number in np.unique(windows).tolist():
            selected = windows == number
            members = parts[self.window * number : self.window * (number + 1)]  # parts of this window
            stops = np.cumsum(self.sizes[members])  # of these parts in the window
            mixed = permute_indices(
                positions[selected] - starts[number], int(stops[-1]), self.seed, _WINDOWS, epoch, number + 1
            )
            owners = np.searchsorted(stops, mixed, side="right")  # part of each item, as an index of `members`
            items[selected] = self.firsts[members][owners] + mixed - (stops - self.sizes[members])[owners]
        return items

    def _windows(self, epoch: int) -> tuple[Ints, Ints]:
        """Return the parts in the order of a pass (parts,), and the position in the pass at which each window begins
        (windows,)."""
        if epoch not in self._cache:
            parts = permutation(len(self.sizes), self.seed, _WINDOWS, epoch, 0)
            totals = np.add.reduceat(self.sizes[parts], np.arange(0, len(parts), self.window))
            self._cache = {**dict(list(self._cache.items())[-1:]), epoch: (parts, np.cumsum(totals) - totals)}
        return self._cache[epoch]


class SharesOrder(GlobalOrder):
    """Passes of `size` draws in which each class has a fixed share.

    The number of draws of a class is the same in each pass. The items of a class are drawn in passes over that class:
    at the end of each pass, the numbers of draws of two items of a class differ by at most 1.

    Args:
        classes: (size,) class of each item, numbered from 0 without gaps.
        shares: (classes,) relative frequencies of the classes; they need not sum to 1.
        batch_size, seed, first_step, first_pass: see `GlobalOrder`.
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
        self.draws = whole_shares(shares, self.size)  # (classes,) draws per pass
        self._cache: dict[int, Ints] = {}  # the last two passes: a batch may contain both

    def batch(self, step: int) -> tuple[Ints, Ints]:
        """Return the number of the pass *over its class* and the index of each item of global batch `step`; both
        (batch_size,).

        So an item that is drawn twice in a pass has two pass numbers, and is masked differently.
        """
        _, draws = super().batch(step)
        epochs, items = np.divmod(draws, self.size)
        return epochs, items

    def whole_pass(self, epoch: int) -> Ints:
        """Return item + `size` x (number of the pass over its class) for each draw of a pass, in order: (size,)."""
        if epoch not in self._cache:
            self._cache = {**dict(list(self._cache.items())[-1:]), epoch: self._draw(epoch)}
        return self._cache[epoch]

    def _draw(self, epoch: int) -> Ints:
        """Return the result of `whole_pass`."""
        parts = []
        for number, (members, draws) in enumerate(zip(self.members, self.draws.tolist(), strict=True)):
            seed = int(random_bits(self.seed, _CLASSES, number))
            epochs, indices = GlobalOrder(len(members), draws, seed).batch(epoch)
            parts.append(epochs * self.size + members[indices])
        return np.concatenate(parts)[_shuffled_items(self.size, self.seed, epoch)]


class BalancedOrder(SharesOrder):
    """Passes in which the share of each class is proportional to count ** power.

    Power 0 draws all classes equally often, power 1 as often as they occur. Conneau and Lample (2019, section 3.1)
    sample languages with power 0.5.

    Args:
        classes, batch_size, seed: see `SharesOrder`.
        power: from 0 to 1.
    """

    def __init__(self, classes: Ints, power: float, batch_size: int, seed: int) -> None:
        super().__init__(classes, np.bincount(classes) ** power, batch_size, seed)


def whole_shares(shares: NDArray[np.floating], total: int) -> Ints:
    """Return integers proportional to `shares` with the sum `total` (largest remainder method)."""
    exact = shares * (total / shares.sum())
    counts = np.floor(exact).astype(np.int64)
    largest = np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]
    counts[largest] += 1
    return counts


@lru_cache(maxsize=4)
def _shuffled_items(size: int, seed: int, epoch: int) -> Ints:
    return permutation(size, seed, _ORDER, epoch)
