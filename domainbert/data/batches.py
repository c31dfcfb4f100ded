"""Batches of training: their order, their division between ranks, and batches of labelled examples.

Global batch t is a pure function of (seed, t).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset
from typing_extensions import override

from domainbert.base.counter_random import permutation, permute_indices, random_bits
from domainbert.data.packing import Batch, Example, Ints, collate
from domainbert.tokenization.load import DomainTokenizer

_ORDER = 0  # stream of random numbers; masking uses other streams
_WINDOWS = 1 << 22  # stream for the order of parts and of the rows of each window
_CLASSES = 1 << 21  # stream for the seeds of classes, distinct from order, masking and dropout


@dataclass(frozen=True)
class Share:
    """Items of a global batch that a rank computes, in `accumulation` micro-batches per optimiser step."""

    rank: int = 0
    world_size: int = 1
    accumulation: int = 1

    def micro_batch_size(self, batch_size: int) -> int:
        """Return the number of items of a micro-batch."""
        return batch_size // self.world_size // self.accumulation

    def select(self, items: NDArray[Any], micro_batch: int) -> NDArray[Any]:
        """Return the items of micro-batch number `micro_batch` (from 0 to `accumulation` - 1) of this rank; `items` are
        all items of a global batch. With 2 ranks and 2 micro-batches, rank 1 has items 1, 5, ... and 3, 7, ..."""
        num_shares = self.world_size * self.accumulation
        return items[self.rank + self.world_size * micro_batch :: num_shares]


class LabelledTrainBatches(Dataset[Batch]):
    """Micro-batches of this rank, with whole examples packed in rows.

    Args:
        examples: the training set.
        tokenizer: tokenizer of the examples.
        order: assigns examples to optimiser steps.
        share: rank and number of micro-batches.
        steps: optimiser steps of the batches, numbered from 0; a resumed training does not begin with 0.
    """

    def __init__(
        self, examples: Sequence[Example], tokenizer: DomainTokenizer, order: GlobalOrder, share: Share, steps: range
    ) -> None:
        self.examples, self.tokenizer = examples, tokenizer
        self.order, self.share, self.steps = order, share, steps
        self._num_targets = np.asarray([sum(len(window.targets) for window in item.windows) for item in examples])

    def __len__(self) -> int:
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        """Return micro-batch `index` from `collate`, with `step`, `micro_batch`, `longest`, the most outputs of an
        example, and `num_examples` and `num_targets` of the *global* batch."""
        step = self.steps[index // self.share.accumulation]
        micro_batch = index % self.share.accumulation
        _, global_batch = self.order.batch(step)
        items = self.share.select(global_batch, micro_batch).tolist()
        num_targets = int(self._num_targets[global_batch].sum())
        examples = [self.examples[i] for i in items]
        batch = collate(examples, items, self.tokenizer)
        longest = max(example.num_outputs for example in examples)
        counts = {"num_examples": len(global_batch), "num_targets": num_targets, "longest": longest}
        return batch | counts | {"step": step, "micro_batch": micro_batch}


class LabelledBatches(Dataset[Batch]):
    """Batches of all examples once, divided between ranks, longest first; at most `max_tokens` tokens in a batch,
    unless a single example has more."""

    def __init__(self, examples: Sequence[Example], tokenizer: DomainTokenizer, max_tokens: int, share: Share) -> None:
        by_length = sorted(range(len(examples)), key=lambda i: (-examples[i].num_tokens, i))
        self.examples, self.tokenizer = examples, tokenizer
        self.batches = _split_by_tokens(by_length[share.rank :: share.world_size], examples, max_tokens)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        items = self.batches[index]
        return collate([self.examples[i] for i in items], items, self.tokenizer)


def _split_by_tokens(items: Sequence[int], examples: Sequence[Example], max_tokens: int) -> list[list[int]]:
    """Items of each batch, which has at most `max_tokens` tokens or is a single example."""
    batches: list[list[int]] = []
    num_tokens = max_tokens  # so that the first item begins a batch
    for item in items:
        num_tokens += examples[item].num_tokens
        if num_tokens > max_tokens:
            batches.append([])
            num_tokens = examples[item].num_tokens
        batches[-1].append(item)
    return batches


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
        # the passes are one endless sequence, in which this batch begins at `start`
        start = self.first_pass * self.size + (step - self.first_step) * self.batch_size
        epochs, positions = np.divmod(np.arange(start, start + self.batch_size, dtype=np.int64), self.size)
        items = np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            selected = epochs == epoch
            items[selected] = self._items(epoch, positions[selected])
        return epochs, items

    def _items(self, epoch: int, positions: Ints) -> Ints:
        """Return the items at `positions` (n,) of pass number `epoch`: (n,)."""
        return _shuffled_items(self.size, self.seed, epoch)[positions]


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
    def _items(self, epoch: int, positions: Ints) -> Ints:
        shuffled_parts, window_starts = self._windows(epoch)
        window_of = np.searchsorted(window_starts, positions, side="right") - 1  # number of each position's window
        items = np.empty_like(positions)
        for number in np.unique(window_of).tolist():
            selected = window_of == number
            parts = shuffled_parts[self.window * number : self.window * (number + 1)]
            size = int(self.sizes[parts].sum())
            stream = number + 1  # of random numbers; stream 0 orders the parts
            index_in_window = positions[selected] - window_starts[number]
            shuffled = permute_indices(index_in_window, size, self.seed, _WINDOWS, epoch, stream)
            items[selected] = self._items_of_parts(parts, shuffled)
        return items

    def _items_of_parts(self, parts: Ints, places: Ints) -> Ints:
        """Return the items at `places` (n,) in the concatenation of some parts: (n,)."""
        stops = np.cumsum(self.sizes[parts])
        owners = np.searchsorted(stops, places, side="right")  # index in `parts` of the part that contains each place
        places_in_part = places - (stops - self.sizes[parts])[owners]
        return self.firsts[parts[owners]] + places_in_part

    def _windows(self, epoch: int) -> tuple[Ints, Ints]:
        """Return the parts in the order of a pass (parts,), and the position in the pass at which each window begins
        (windows,)."""
        if epoch not in self._cache:
            parts = permutation(len(self.sizes), self.seed, _WINDOWS, epoch, 0)
            totals = np.add.reduceat(self.sizes[parts], np.arange(0, len(parts), self.window))  # items of each window
            latest = dict(list(self._cache.items())[-1:])  # the pass that was added last; older ones are dropped
            self._cache = {**latest, epoch: (parts, np.cumsum(totals) - totals)}
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
        class_epochs, items = np.divmod(draws, self.size)  # inverts the code of `_draw`
        return class_epochs, items

    @override
    def _items(self, epoch: int, positions: Ints) -> Ints:
        if epoch not in self._cache:
            latest = dict(list(self._cache.items())[-1:])  # the pass that was added last; older ones are dropped
            self._cache = {**latest, epoch: self._draw(epoch)}
        return self._cache[epoch][positions]

    def _draw(self, epoch: int) -> Ints:
        """Return the draws (size,) of a pass: the draws of the classes, concatenated and shuffled. A draw is coded as
        item + `size` x (number of the pass over its class)."""
        draws_by_class = []
        for number, (members, num_draws) in enumerate(zip(self.members, self.draws.tolist(), strict=True)):
            class_seed = int(random_bits(self.seed, _CLASSES, number))
            # pass `epoch` takes batch `epoch` of an order over the members of the class, with batches of `num_draws`
            class_epochs, indices = GlobalOrder(len(members), num_draws, class_seed).batch(epoch)
            draws_by_class.append(class_epochs * self.size + members[indices])
        order = _shuffled_items(self.size, self.seed, epoch)
        return np.concatenate(draws_by_class)[order]


def whole_shares(shares: NDArray[np.floating], total: int) -> Ints:
    """Return integers proportional to `shares` with the sum `total` (largest remainder method)."""
    exact = shares * (total / shares.sum())
    counts = np.floor(exact).astype(np.int64)
    # add 1 to the numbers with the largest remainders, until the sum is `total`
    largest = np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]
    counts[largest] += 1
    return counts


@lru_cache(maxsize=4)
def _shuffled_items(size: int, seed: int, epoch: int) -> Ints:
    return permutation(size, seed, _ORDER, epoch)
