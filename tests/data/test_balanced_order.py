"""Passes that draw classes more evenly than they occur: exact counts, and a pure function of seed and step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.data.batches import SharesOrder, whole_shares

COUNTS = (700, 250, 50)
CLASSES = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], COUNTS))


def balanced_order(power: float, batch_size: int, seed: int) -> SharesOrder:
    return SharesOrder(CLASSES, np.bincount(CLASSES) ** power, batch_size, seed)


def drawn(order: SharesOrder, steps: int) -> np.ndarray:
    return np.concatenate([order.batch(step)[1] for step in range(steps)])


@pytest.mark.parametrize(
    ("power", "draws"),
    [(0.0, [334, 333, 333]), (0.5, [536, 321, 143]), (1.0, [700, 250, 50])],  # 536.21, 320.45, 143.34
)
def test_a_pass_has_each_class_so_often(power: float, draws: list[int]) -> None:
    order = balanced_order(power, 100, 3)
    for epoch in range(3):
        items = np.concatenate([order.batch(10 * epoch + step)[1] for step in range(10)])
        assert np.bincount(CLASSES[items]).tolist() == draws


def test_items_of_a_class_come_equally_often() -> None:
    order = balanced_order(0.5, 100, 5)
    times = np.zeros(1000, dtype=int)
    for epoch in range(12):
        for step in range(10):
            times += np.bincount(order.batch(10 * epoch + step)[1], minlength=1000)
        for number in range(3):
            of_class = times[number == CLASSES]
            assert of_class.max() - of_class.min() <= 1
    rare = [CLASSES[order.batch(step)[1]] == 2 for step in range(100)]
    assert min(map(sum, rare)) > 5 and max(map(sum, rare)) < 27, "a class is spread over the steps of a pass"


def test_a_batch_does_not_depend_on_history() -> None:
    first = balanced_order(0.5, 64, 3)
    in_order = [first.batch(step) for step in range(40)]
    for step in (39, 0, 15, 16, 31):
        epochs, items = balanced_order(0.5, 64, 3).batch(step)
        assert np.array_equal(epochs, in_order[step][0]) and np.array_equal(items, in_order[step][1])
    other = balanced_order(0.5, 64, 4).batch(0)[1]
    assert (other == in_order[0][1]).mean() < 0.2


def test_what_comes_again_belongs_to_another_pass_over_its_class() -> None:
    """Of the rare class 50 items are drawn 143 times in a pass; no item has a pass twice, none is left out of one."""
    order = balanced_order(0.5, 100, 5)
    epochs, items = (np.concatenate(parts) for parts in zip(*map(order.batch, range(40)), strict=True))
    assert len(set(zip(epochs.tolist(), items.tolist(), strict=True))) == 4000
    for number, (members, draws) in enumerate(zip(COUNTS, [536, 321, 143], strict=True)):
        passes = np.bincount(epochs[CLASSES[items] == number])
        whole, rest = divmod(4 * draws, members)
        assert passes.tolist() == [members] * whole + [rest] * (rest > 0)


def test_a_share_is_of_what_is_drawn_whatever_there_is() -> None:
    order = SharesOrder(CLASSES, np.array([0.2, 0.2, 0.6]), 100, 1)
    drawn = np.concatenate([order.batch(step)[1] for step in range(10)])
    assert np.bincount(CLASSES[drawn]).tolist() == [200, 200, 600]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=9), st.floats(0, 1))
def test_shares_are_whole_and_leave_no_class_out(counts: list[int], power: float) -> None:
    found = whole_shares(np.array(counts) ** power, sum(counts))
    assert found.sum() == sum(counts) and found.min() >= 1
    exact = np.array(counts) ** power * sum(counts) / (np.array(counts) ** power).sum()
    assert np.abs(found - exact).max() < 1
