"""Random numbers that depend on where they are used, not on what was drawn before.

With a stateful generator, resuming, changing the number of workers, or reading a single row changes every later
number. Here a number depends on (seed, stream, epoch, row, position) only: mixing is SplitMix64 (Steele, Lea and Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014, figure 16).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # step between the states of SplitMix64: 2^64 divided by the golden ratio
_FEISTEL_ROUNDS = 6
_BLOCK_LENGTH = 1 << 13  # numbers; 64 KiB
UInts = NDArray[np.uint64]


def _mix(value: UInts) -> UInts:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _mix_in_place(values: UInts) -> None:
    """Replace `values` by `_mix(values)` block by block: a block stays in the processor's cache, which takes a third of
    the time."""
    shifted = np.empty(min(len(values), _BLOCK_LENGTH), dtype=np.uint64)
    for start in range(0, len(values), _BLOCK_LENGTH):
        block = values[start : start + _BLOCK_LENGTH]
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            block ^= np.right_shift(block, np.uint64(shift), out=shifted[: len(block)])
            if factor > 1:
                block *= np.uint64(factor)


def advance_states(states: UInts, counts: NDArray[np.integer]) -> UInts:
    """Return the states of generators (see `draw_numbers`) after generator i has drawn `counts[i]` numbers."""
    with np.errstate(over="ignore"):
        return states + counts.astype(np.uint64) * _GOLDEN


def draw_numbers(states: UInts, counts: NDArray[np.integer]) -> UInts:
    """Return the next `counts[i]` random numbers of each generator i, concatenated: (sum of `counts`,).

    `states[i]` is the state of generator i. Number n of the generator with state s is `_mix(s + (n + 1) * golden)`:
    SplitMix64 as published, and equal to `random_bits(n)` if s is the golden number.
    """
    numbers = np.empty(int(counts.sum()), dtype=np.uint64)
    longest = int(counts.max(initial=0))
    with np.errstate(over="ignore"):
        steps = np.arange(1, longest + 1, dtype=np.uint64) * _GOLDEN
        if len(numbers) == longest * len(counts):
            np.add(states[:, None], steps, out=numbers.reshape(len(counts), longest))
        else:
            for state, count, stop in zip(states, counts.tolist(), np.cumsum(counts).tolist(), strict=True):
                np.add(steps[:count], state, out=numbers[stop - count : stop])
        _mix_in_place(numbers)
    return numbers


def random_bits(*counters: NDArray[np.integer] | int) -> UInts:
    """Return 64 random bits for each combination of counters; the counters broadcast against each other."""
    with np.errstate(over="ignore"):
        state = np.asarray(_GOLDEN)
        for counter in counters:
            unsigned = np.asarray(counter).astype(np.uint64)
            state = _mix(state + (unsigned + np.uint64(1)) * _GOLDEN)
        return state


def uniform(bits: UInts) -> NDArray[np.float64]:
    """Convert each 64 random bits to a uniform number in [0, 1)."""
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
