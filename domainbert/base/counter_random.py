"""Random numbers that depend on where they are used, not on what was drawn before.

With a stateful generator, resuming, changing the number of workers, or reading a single row changes every later
number. Here a number depends on (seed, stream, epoch, row, position) only: mixing is SplitMix64 (Steele, Lea and Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014, figure 16).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 6
_BLOCK = 1 << 13  # 64 KiB
UInts = NDArray[np.uint64]


def _mix(value: UInts) -> UInts:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _mix_in_place(values: UInts) -> None:
    """`_mix`, a block at a time: they stay in the processor's cache, which takes a third of the time."""
    shifted = np.empty(min(len(values), _BLOCK), dtype=np.uint64)
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            block ^= np.right_shift(block, np.uint64(shift), out=shifted[: len(block)])
            if factor > 1:
                block *= np.uint64(factor)


def skipped(states: UInts, numbers: NDArray[np.integer]) -> UInts:
    """The states of generators, see `streams`, after so many numbers of each."""
    with np.errstate(over="ignore"):
        return states + numbers.astype(np.uint64) * _GOLDEN


def streams(states: UInts, counts: NDArray[np.integer]) -> UInts:
    """The first numbers of several generators, (sum of `counts`,): so many of each, one generator after the other.

    Number n of the generator with a state s is `_mix(s + (n + 1) * golden)`: SplitMix64 as published, and
    `random_bits(n)` where s is the golden number.
    """
    found = np.empty(int(counts.sum()), dtype=np.uint64)
    longest = int(counts.max(initial=0))
    with np.errstate(over="ignore"):
        ahead = np.arange(1, longest + 1, dtype=np.uint64) * _GOLDEN
        if len(found) == longest * len(counts):
            np.add(states[:, None], ahead, out=found.reshape(len(counts), longest))
        else:
            for state, count, stop in zip(states, counts.tolist(), np.cumsum(counts).tolist(), strict=True):
                np.add(ahead[:count], state, out=found[stop - count : stop])
        _mix_in_place(found)
    return found


def random_bits(*counters: NDArray[np.integer] | int) -> UInts:
    """64 random bits for each combination of counters, which broadcast against each other."""
    with np.errstate(over="ignore"):
        state = np.asarray(_GOLDEN)
        for counter in counters:
            word = np.asarray(counter).astype(np.uint64)
            state = _mix(state + (word + np.uint64(1)) * _GOLDEN)
        return state


def uniform(bits: UInts) -> NDArray[np.float64]:
    """Numbers in [0, 1) from 64 random bits each."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(size: int, *counters: int) -> NDArray[np.int64]:
    """A permutation of `range(size)` that depends on the counters only."""
    bits = random_bits(*counters, np.arange(size, dtype=np.int64))
    return np.argsort(bits, kind="stable").astype(np.int64)


def permuted(places: NDArray[np.integer], size: int, *counters: int) -> NDArray[np.int64]:
    """Some places of a permutation of `range(size)`, without the others: memory and time for `places` alone.

    The permutation depends on the counters only; it is not that of `permutation`. A Feistel network (Luby and Rackoff
    1988), whose halves take turns in six rounds of SplitMix64, permutes the next power of two above `size`; whatever
    falls outside is permuted again until it does not (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002, section 3), less than twice in the mean. `size` is at most 2^62.
    """
    bits = max((size - 1).bit_length(), 2)
    keys = random_bits(*counters, np.arange(_ROUNDS))
    found = places.astype(np.uint64)
    outside = np.ones(found.shape, dtype=np.bool_)
    while outside.any():
        found[outside] = _feistel(found[outside], bits, keys)
        outside &= found >= np.uint64(size)
    return found.astype(np.int64)


def _feistel(values: UInts, bits: int, keys: UInts) -> UInts:
    """Permute numbers of so many bits."""
    low = bits // 2
    shift, low_mask, high_mask = (np.uint64(one) for one in (low, (1 << low) - 1, (1 << (bits - low)) - 1))
    high, rest = values >> shift, values & low_mask
    with np.errstate(over="ignore"):
        for number, key in enumerate(keys):
            if number % 2:
                rest = rest ^ (_mix(high + key) & low_mask)
            else:
                high = high ^ (_mix(rest + key) & high_mask)
    return (high << shift) | rest
