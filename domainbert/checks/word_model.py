"""Bigram language model of words with interpolated Kneser-Ney smoothing, to measure how well a corpus predicts a text.

With c the counts in the corpus and N the number of distinct words at a position (`*`), the probability of w after v is

    P(w | v) = max(c(v w) - d, 0) / c(v *) + d N(v *) / c(v *) * Q(w)

    Q(w) = max(N(* w) - e, 0) / N(* *) + e N(distinct w after a word) / N(* *) * U

(Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling", section 2.7): Q(w) is high
if w follows many distinct words, not if w is frequent. After an unknown word v, P is Q. The discounts d (of bigrams)
and e (of second words) are n1 / (n1 + 2 n2), where n1 and n2 are the numbers of items counted once and twice (Ney,
Essen and Kneser 1994), with 1 added to n1 and 1/2 to n2. The first word of a text has the unigram probability,
discounted in the same way. U = 2**-20 is the probability of an unknown word within the discounted mass, as in a
vocabulary of a million words. So an unknown word costs 20 bits plus the bits of that mass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNKNOWN = 2.0**-20
"""Probability of a particular unknown word, given that the word is unknown."""

_WIDTH = 1 << 32  # id of a bigram: first word id * _WIDTH + second word id

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TextPrediction:
    """How well a `WordModel` predicts a text."""

    words: int  # number of words
    bits: float  # code length: sum of -log2 P over the words
    unknown: int
    """Number of words that do not occur in the corpus."""
    seen_pairs: int
    """Number of bigrams, out of `words - 1`, that occur in the corpus."""


class WordModel:
    """Kneser-Ney bigram model of documents; each document is a list of words, and bigrams do not cross documents."""

    def __init__(self, documents: Iterable[Sequence[str]]) -> None:
        self._ids: dict[str, int] = {}
        word_ids = [
            np.array([self._ids.setdefault(word, len(self._ids)) for word in doc], np.int64) for doc in documents
        ]
        pairs, counts = np.unique(_concatenate(map(_bigram_ids, word_ids)), return_counts=True)
        before, after = np.divmod(pairs, _WIDTH)
        size = len(self._ids) + 1  # the last id is for unknown words, which have no count
        # a last pair that no text has, so that every index from `searchsorted` in `predict` is valid
        self._pairs, self._counts = np.append(pairs, np.iinfo(np.int64).max), np.append(counts, 0)
        self._tokens = np.bincount(before, counts, size)  # c(v *)
        self._types = np.bincount(before, minlength=size)  # N(v *)
        self._discount = discount(counts)
        self._unigram = _discounted(np.bincount(_concatenate(word_ids), minlength=size))  # P of the first word
        self._continuation = _discounted(np.bincount(after, minlength=size))  # Q

    def predict(self, words: Sequence[str]) -> TextPrediction:
        """Return the code length of a text in bits, and how many of its words and bigrams occur in the corpus."""
        ids = np.array([self._ids.get(word, len(self._ids)) for word in words], np.int64)
        pairs = _bigram_ids(ids)
        indices = np.searchsorted(self._pairs, pairs)
        counts = np.where(self._pairs[indices] == pairs, self._counts[indices], 0)
        probabilities = np.concatenate([self._unigram[ids[:1]], self._conditional(ids[:-1], ids[1:], counts)])
        unknown = int((ids == len(self._ids)).sum())
        return TextPrediction(len(ids), -float(np.log2(probabilities).sum()), unknown, int((counts > 0).sum()))

    def _conditional(self, before: Ints, words: Ints, counts: Ints) -> Floats:
        """Return P(words | before), elementwise; `counts` are the counts of these bigrams in the corpus."""
        continuation, tokens = self._continuation[words], self._tokens[before]
        mass = np.maximum(counts - self._discount, 0) + self._discount * self._types[before] * continuation
        return np.where(tokens > 0, mass / np.maximum(tokens, 1), continuation)


def discount(counts: Ints) -> float:
    """Return the discount n1 / (n1 + 2 n2), with 1 added to n1 and 1/2 to n2; see the module docstring."""
    once, twice = ((counts == count).sum() for count in (1, 2))
    return float((once + 1) / (once + 2 * twice + 2))


def _discounted(counts: Ints) -> Floats:
    """Return probabilities from discounted counts; each word also gets the share `UNKNOWN` of the discounted mass."""
    if not counts.any():
        return np.full(len(counts), UNKNOWN)
    subtracted = discount(counts)
    return (np.maximum(counts - subtracted, 0) + subtracted * np.count_nonzero(counts) * UNKNOWN) / counts.sum()


def _bigram_ids(ids: Ints) -> Ints:
    """Return the bigram id of each two adjacent words."""
    return ids[:-1] * _WIDTH + ids[1:]


def _concatenate(arrays: Iterable[Ints]) -> Ints:
    # the empty array: NumPy raises an error without arrays
    return np.concatenate([np.zeros(0, np.int64), *arrays])
