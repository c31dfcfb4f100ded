from __future__ import annotations

from domainbert.metrics.diagnostics import LENGTHS, accuracy_by_length


def test_lengths_in_words():
    words = [0, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 5000]
    found = accuracy_by_length(words, [[number % 2 == 0 for number in range(14)]])
    assert list(found) == list(LENGTHS)
    assert all(one == {"support": 2, "right": 0.5} for one in found.values())


def test_the_share_is_the_mean_over_the_runs_and_empty_slices_are_left_out():
    found = accuracy_by_length([3, 40, 4, 5], [[True, True, False, False], [True, False, True, False]])
    assert found == {"0-8": {"support": 3, "right": 0.5}, "33-64": {"support": 1, "right": 0.5}}
