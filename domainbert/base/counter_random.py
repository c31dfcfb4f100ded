"""Random numbers that depend on where they are used, not on what was drawn before.

With a stateful generator, resuming, changing the number of workers, or reading a single row changes every later
number. Here a number depends on (seed, stream, epoch, row, position) only: mixing is SplitMix64 (Steele, Lea and Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014, figure 16).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Step between the states of SplitMix64: 2^64 divided by the golden ratio."""
MIXING_ROUNDS = tuple(
    (np.uint64(shift), np.uint64(factor))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
)
"""Rounds of SplitMix64's mixing: a number is XORed with itself shifted to the right, then multiplied by a factor."""
_FEISTEL_ROUNDS = 6
UInts = NDArray[np.uint64]


def _mix(values: UInts) -> UInts:
    """Return hashes of the values: the mixing of SplitMix64, which maps different values to different hashes."""
    for shift, factor in MIXING_ROUNDS:
        values = (values ^ (values >> shift)) * factor
    return values


def random_bits(*counters: NDArray[np.integer] | int) -> UInts:
    """Return 64 random bits for each combination of counters; the counters broadcast against each other."""
    with np.errstate(over="ignore"):
        state = np.asarray(GOLDEN)
        for counter in counters:
            unsigned = np.asarray(counter).astype(np.uint64)
            state = _mix(state + (unsigned + np.uint64(1)) * GOLDEN)
        return state


def uniform(bits: UInts) -> NDArray[np.float64]:
    """Convert each 64 random bits to a uniform number in [0, 1), from the highest 53 bits (float64 has no more)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(size: int, *counters: int) -> NDArray[np.int64]:
    """Return a random permutation of `range(size)` that depends only on the counters."""
    bits = random_bits(*counters, np.arange(size, dtype=np.int64))
    return np.argsort(bits, kind="stable").astype(np.int64)


def permute_indices(indices: NDArray[np.integer], size: int, *counters: int) -> NDArray[np.int64]:
    """Return the values of a random permutation of `range(size)` at `indices`; memory and time do not depend on `size`.

    The permutation depends only on the counters and differs from `permutation`. A Feistel network (Luby and Rackoff
    1988) with six rounds of SplitMix64 permutes the next power of two above `size`. A value outside the range is
    permuted again until it is inside (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002,
    section 3), on average less than twice. `size` is at most 2^62.
    """
    bits = max((size - 1).bit_length(), 2)
    keys = random_bits(*counters, np.arange(_FEISTEL_ROUNDS))
    values = indices.astype(np.uint64)
    outside = np.ones(values.shape, dtype=np.bool_)
    while outside.any():
        values[outside] = _feistel(values[outside], bits, keys)
        outside &= values >= np.uint64(size)
    return values.astype(np.int64)


def _feistel(values: UInts, bits: int, keys: UInts) -> UInts:
    """Permute the numbers of `bits` bits: each round changes the low or the high half by a hash of the other half."""
    low_bits = bits // 2
    shift, low_mask, high_mask = map(np.uint64, (low_bits, (1 << low_bits) - 1, (1 << (bits - low_bits)) - 1))
    high, low = values >> shift, values & low_mask
    with np.errstate(over="ignore"):
        for index, key in enumerate(keys):
            if index % 2:
                low = low ^ (_mix(high + key) & low_mask)
            else:
                high = high ^ (_mix(low + key) & high_mask)
    return (high << shift) | low
