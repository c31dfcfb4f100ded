"""The order of a corpus in parts: a bijection, in windows, the same from wherever one begins."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from domainbert.base.counter_random import permute_indices
from domainbert.data.batches import WindowedOrder

MANY = np.full(2_000, 500_000)  # 1e9 rows


@given(st.integers(1, 5_000), st.integers(0, 2**40), st.integers(0, 5))
def test_every_place_is_taken_once(size: int, seed: int, epoch: int) -> None:
    assert sorted(permute_indices(np.arange(size), size, seed, epoch).tolist()) == list(range(size))


def test_a_permutation_is_fixed_by_its_counters() -> None:
    assert permute_indices(np.arange(10), 10, 3, 1).tolist() == [9, 4, 3, 5, 8, 2, 6, 0, 7, 1]
    whole = permute_indices(np.arange(1_000), 1_000, 3, 1)
    assert np.array_equal(permute_indices(np.array([7, 999, 0, 7]), 1_000, 3, 1), whole[[7, 999, 0, 7]])
    others = [permute_indices(np.arange(1_000), 1_000, *counters) for counters in ((3, 2), (4, 1), (1, 3))]
    assert max((whole == other).mean() for other in others) < 0.01


def test_neighbours_are_torn_apart() -> None:
    size = 100_000
    taken = permute_indices(np.arange(size), size, 0)
    assert abs(np.corrcoef(np.arange(size), taken)[0, 1]) < 0.02
    assert 0.32 < np.abs(np.diff(taken)).mean() / size < 0.35, "a third, as of independent draws"


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any),
    st.integers(1, 5),
    st.integers(1, 20),
    st.integers(0, 2**40),
)
def test_a_pass_has_each_item_once_window_by_window(sizes: list[int], window: int, batch_size: int, seed: int) -> None:
    order = WindowedOrder(np.array(sizes), window, batch_size, seed)
    size = sum(sizes)
    batches = [order.batch(step) for step in range(-(-2 * size // batch_size))]
    epochs, items = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert np.array_equal(epochs, np.arange(len(items)) // size)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    for epoch in range(2):
        own = items[epoch * size : (epoch + 1) * size]
        assert sorted(own.tolist()) == list(range(size))
        parts = order._windows(epoch)[0]
        seen = [set(parts[start : start + window].tolist()) for start in range(0, len(sizes), window)]
        ends = np.cumsum([sum(sizes[part] for part in members) for members in seen])
        if batch_size == 1:
            for members, end, begin in zip(seen, ends, [0, *ends[:-1]], strict=True):
                assert {int(part) for part in owners[own[begin:end]]} <= members


def test_a_batch_does_not_depend_on_history() -> None:
    order = WindowedOrder(MANY, 64, 256, 3)
    later = order.batch(1_000_000)
    order.batch(5)
    assert all(map(np.array_equal, later, order.batch(1_000_000)))
    again = WindowedOrder(MANY, 64, 256, 3, first_step=10, first_pass=0).batch(1_000_010)
    assert all(map(np.array_equal, later, again))


def test_a_billion_rows_are_each_drawn_at_most_once_in_a_pass() -> None:
    order = WindowedOrder(MANY, 64, 4_096, 3)
    steps = [0, 1, 2, 30_000, 100_000, 244_139]
    drawn = np.concatenate([order.batch(step)[1] for step in steps])
    assert len(np.unique(drawn)) == len(drawn) and drawn.min() >= 0 and drawn.max() < MANY.sum()
    last, first = order.batch(244_140)  # 1e9 / 4096 = 244,140.6
    assert set(last.tolist()) == {0, 1} and len(np.unique(first)) == 4_096
    first_window = order.batch(0)[1] // 500_000
    assert len(set(first_window.tolist())) == 64, "rows of all parts of the window, and of no other part"
    assert set(first_window.tolist()) == set(order._windows(0)[0][:64].tolist())
