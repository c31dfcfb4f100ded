"""A small model of words, to say how well a corpus predicts other text: interpolated Kneser-Ney of pairs of words.

With c the counts in the corpus and N the number of different words beside a word (`*`), the probability of w after v is

    P(w | v) = max(c(v w) - d, 0) / c(v *) + d N(v *) / c(v *) * Q(w)

    Q(w) = max(N(* w) - e, 0) / N(* *) + e N(different w behind others) / N(* *) * U

(Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling", section 2.7): a word is
likely after any word if many words stand before it, not if it is frequent. Behind a word that the corpus has not, P is
Q. The discounts d and e are n1 / (n1 + 2 n2), of the pairs, or words behind others, that were counted once and twice
(Ney, Essen and Kneser 1994), with 1 added to n1 and 1/2 to n2. The first word of a text has none before it, so its
probability is its share of the words, discounted likewise. U = 2**-20 is what any word has that the corpus has not: as
if all words were among a million. So an unknown word costs 20 bits and what is taken from the known ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNKNOWN = 2.0**-20
"""The probability of any one word that a corpus has not, once it is such."""

_WIDTH = 1 << 32  # of the numbers of words, two of which make that of a pair

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Predicted:
    """Prediction of one text by a corpus."""

    words: int
    bits: float
    unknown: int
    """Words that the corpus has not."""
    seen_pairs: int
    """Pairs of neighbours, of `words - 1`, that the corpus has."""


class WordModel:
    """Kneser-Ney on documents, each a list of words; pairs do not cross from one into the next."""

    def __init__(self, documents: Iterable[Sequence[str]]) -> None:
        self._ids: dict[str, int] = {}
        numbered = [np.array([self._ids.setdefault(w, len(self._ids)) for w in words], np.int64) for words in documents]
        pairs, counts = np.unique(_joined(map(_pairs, numbered)), return_counts=True)
        before, behind = np.divmod(pairs, _WIDTH)
        size = len(self._ids) + 1  # the last one is of unknown words, which have no count
        self._pairs, self._counts = np.append(pairs, np.iinfo(np.int64).max), np.append(counts, 0)
        self._tokens = np.bincount(before, counts, size)  # c(v *)
        self._kinds = np.bincount(before, minlength=size)  # N(v *)
        self._discount = discount_of(counts)
        self._alone = _discounted(np.bincount(_joined(numbered), minlength=size))
        self._after_any = _discounted(np.bincount(behind, minlength=size))

    def predict(self, words: Sequence[str]) -> Predicted:
        """The bits that it takes to tell a text, word by word, and what of it the corpus has."""
        ids = np.array([self._ids.get(word, len(self._ids)) for word in words], np.int64)
        wanted = _pairs(ids)
        places = np.searchsorted(self._pairs, wanted)
        counts = np.where(self._pairs[places] == wanted, self._counts[places], 0)
        likely = np.concatenate([self._alone[ids[:1]], self._after(ids[:-1], ids[1:], counts)])
        unknown = int((ids == len(self._ids)).sum())
        return Predicted(len(ids), -float(np.log2(likely).sum()), unknown, int((counts > 0).sum()))

    def _after(self, before: Ints, words: Ints, counts: Ints) -> Floats:
        """P(w | v) of pairs, and how often each was counted."""
        after_any, tokens = self._after_any[words], self._tokens[before]
        own = np.maximum(counts - self._discount, 0) + self._discount * self._kinds[before] * after_any
        return np.where(tokens > 0, own / np.maximum(tokens, 1), after_any)


def discount_of(counts: Ints) -> float:
    """The part that is taken from each count: see above."""
    once, twice = ((counts == number).sum() for number in (1, 2))
    return float((once + 1) / (once + 2 * twice + 2))


def _discounted(counts: Ints) -> Floats:
    """Probabilities from counts, with what is taken from them spread over unknown words, `UNKNOWN` of it for each."""
    if not counts.any():
        return np.full(len(counts), UNKNOWN)
    discount, total = discount_of(counts), counts.sum()
    return (np.maximum(counts - discount, 0) + discount * np.count_nonzero(counts) * UNKNOWN) / total


def _pairs(ids: Ints) -> Ints:
    return ids[:-1] * _WIDTH + ids[1:]


def _joined(arrays: Iterable[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *arrays])
