from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from domainbert.data.batches import GlobalOrder


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 2**40), st.integers(1, 20))
def test_each_pass_has_each_item_once_and_batches_span_passes(size, batch_size, seed, steps):
    order = GlobalOrder(size, batch_size, seed)
    batches = [order.batch(step) for step in range(steps)]
    assert all(len(epochs) == len(items) == batch_size for epochs, items in batches)
    epochs, items = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert np.array_equal(epochs, np.arange(steps * batch_size) // size)
    for start in range(0, len(items) - size + 1, size):
        assert sorted(items[start : start + size].tolist()) == list(range(size))


def test_a_batch_does_not_depend_on_history():
    first = GlobalOrder(1_000, 64, 3)
    in_order = [first.batch(step) for step in range(40)]
    for step in (39, 0, 15, 16, 31):
        epochs, items = GlobalOrder(1_000, 64, 3).batch(step)
        assert np.array_equal(epochs, in_order[step][0]) and np.array_equal(items, in_order[step][1])
    assert set(in_order[15][0].tolist()) == {0, 1}, "batch 15 spans the end of a pass"
    in_order[0][1][:] = -1  # what a caller does to a batch stays with the caller
    assert first.batch(0)[1].min() >= 0


def test_passes_and_seeds_have_orders_of_their_own():
    order = GlobalOrder(1_000, 1_000, 3)
    passes = [order.batch(0)[1], order.batch(1)[1], GlobalOrder(1_000, 1_000, 4).batch(0)[1]]
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert (passes[one] == passes[two]).mean() < 0.02


def test_golden_order():
    assert GlobalOrder(7, 5, 0).batch(1)[0].tolist() == [0, 0, 1, 1, 1]
    assert GlobalOrder(7, 5, 0).batch(1)[1].tolist() == [0, 2, 3, 4, 6]
