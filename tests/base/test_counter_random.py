from __future__ import annotations

import itertools

import numpy as np

from domainbert.base.counter_random import permutation, permute_indices, random_bits, uniform


def test_golden_values():
    # The second to fourth output of SplitMix64 with seed 0, as its authors' C code prints them.
    assert random_bits(np.arange(3)).tolist() == [0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    # Ours, over several counters: a change of these changes every mask and every order.
    assert [int(random_bits(*counters)) for counters in ((7, 1), (1, 7), (0, 0, 0), (2**40, 3))] == [
        12107662694279860220,
        13443964451576523481,
        9271759356047530030,
        7985898816879382678,
    ]
    assert permutation(8, 7, 1).tolist() == [6, 5, 0, 3, 1, 7, 4, 2]


def test_counters_broadcast_and_stand_alone():
    grid = random_bits(3, np.arange(4)[:, None], np.arange(5)[None, :])
    assert grid.shape == (4, 5) and grid.dtype == np.uint64 and len(np.unique(grid)) == 20
    for row, column in itertools.product(range(4), range(5)):
        assert grid[row, column] == random_bits(3, row, column)


def test_uniform_in_every_counter_and_in_every_bit():
    size = 100_000
    for bits in (
        random_bits(np.arange(size)),
        random_bits(np.arange(size), 5),
        random_bits(9, 2, np.arange(size // 100)[:, None], np.arange(100)[None, :]).ravel(),
    ):
        values = uniform(bits)
        assert values.min() >= 0 and values.max() < 1
        counts = np.bincount((values * 50).astype(int), minlength=50)
        chi_square = ((counts - size / 50) ** 2 / (size / 50)).sum()
        assert chi_square < 94  # 49 degrees of freedom: exceeded once in 10,000 seeds
        ones = ((bits[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
        assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(size)
    assert uniform(np.asarray([0, 2**64 - 1], dtype=np.uint64)).tolist() == [0.0, 1 - 2.0**-53]


def test_streams_are_independent():
    size = 20_000
    streams = [uniform(random_bits(*key, np.arange(size))) for key in ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0))]
    streams.append(uniform(random_bits(np.arange(size), 0)))
    streams.append(np.roll(streams[0], 1))
    for one, other in itertools.combinations(streams, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / np.sqrt(size)


def test_permutation():
    assert sorted(permutation(1_000, 3).tolist()) == list(range(1_000))
    assert not np.array_equal(permutation(1_000, 3), permutation(1_000, 4))
    firsts = np.bincount([int(permutation(5, seed)[0]) for seed in range(5_000)], minlength=5)
    assert np.abs(firsts - 1_000).max() < 4.5 * np.sqrt(1_000 * 0.8)


def test_permuted_places_stay_the_same_in_every_version():
    assert permute_indices(np.arange(10), 10, 7).tolist() == [7, 9, 4, 3, 0, 8, 2, 1, 6, 5]
    assert permute_indices(np.arange(5), 1_000, 3, 1).tolist() == [152, 429, 316, 91, 977]
