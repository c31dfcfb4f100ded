"""Words of raw text, and hashes of their n-grams, which are the same in every process and on every machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from domainbert.base.counter_random import UInts, random_bits

_WORD = re.compile(r"\w+")
_REMEMBERED = 1 << 18  # words; the frequent ones are hashed once
_ODD = 0x9E3779B97F4A7C15


def words_of(text: str) -> list[str]:
    """The runs of letters and digits, in lower case: so text that was cut into words and text that was not agree.

    Scripts that write vowels as marks are cut at these, alike in every text.
    """
    return _WORD.findall(text.lower())


@lru_cache(_REMEMBERED)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def hash_words(words: Sequence[str]) -> UInts:
    """64 bits for each word, (words,)."""
    return np.fromiter(map(_hash, words), np.uint64, len(words))


def hash_ngrams(hashes: UInts, size: int) -> UInts:
    """64 bits for each run of `size` words, (words - size + 1,); none where there are fewer words.

    They are a polynomial of the words' hashes, modulo 2**64, whose bits are mixed.
    """
    if len(hashes) < size:
        return np.zeros(0, np.uint64)
    factors = np.array([pow(_ODD, place + 1, 1 << 64) for place in range(size)], np.uint64)
    return random_bits(np.lib.stride_tricks.sliding_window_view(hashes, size) @ factors)
