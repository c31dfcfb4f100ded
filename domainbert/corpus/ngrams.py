"""Words of raw text, and hashes of n-grams that are equal in all processes and on all machines."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from domainbert.base.counter_random import UInts, random_bits
from domainbert.base.scripts import CHINESE_AND_JAPANESE

_MARKS = "".join(mark for mark in map(chr, range(0x300, 0x1F000)) if unicodedata.category(mark).startswith("M"))
_CHARACTER_WORDS = "".join(f"{first}-{last}" for first, last in CHINESE_AND_JAPANESE)
_LETTER = rf"[^\W{_CHARACTER_WORDS}]"
# `\w` has no combining marks, which write vowels in many scripts
_WORD = re.compile(rf"{_LETTER}+(?:[{_MARKS}]+{_LETTER}*)*|[{_CHARACTER_WORDS}]")
_TREEBANK = re.compile(r"-[lr][rsc]b-| (?=n't\b)")
_CACHE_SIZE = 1 << 18  # words, so that frequent words are hashed once
_ODD = 0x9E3779B97F4A7C15  # base of the polynomial of a run; odd, so that no bits are lost


def words_of_text(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case, so that tokenized and raw text have the same words, also
    with the brackets and contractions of the Penn Treebank (`-LRB-`, `do n't`).

    Each Chinese or Japanese character is a word. Thai, Lao, Burmese and Khmer are split only at spaces and punctuation.
    """
    text = text.lower()
    if "b-" in text or " n't" in text:  # a fast check first
        text = _TREEBANK.sub("", text)
    return _WORD.findall(text)


@lru_cache(_CACHE_SIZE)
def _hash(word: str) -> int:
    # Python's `hash` differs between processes
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def hash_words(words: Sequence[str]) -> UInts:
    """Return the 64-bit hash of each word, (words,)."""
    return np.fromiter(map(_hash, words), np.uint64, len(words))


def hash_ngrams(hashes: UInts, size: int) -> UInts:
    """Return the 64-bit hash of each run of `size` words, (words - size + 1,); empty for fewer than `size` words.

    `hashes` (words,) are the hashes of the words. A hash of a run is their polynomial modulo 2**64, with its bits
    mixed.
    """
    if len(hashes) < size:
        return np.zeros(0, np.uint64)
    factors = np.array([pow(_ODD, power, 1 << 64) for power in range(1, size + 1)], np.uint64)
    runs = np.lib.stride_tricks.sliding_window_view(hashes, size)  # (words - size + 1, size)
    return random_bits(runs @ factors)
