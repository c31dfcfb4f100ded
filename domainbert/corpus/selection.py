"""Chooses the documents of a corpus that are most like some text, by importance weights of hashed n-grams.

The weights are those of DSIR (Xie et al. 2023, "Data Selection for Language Models via Importance Resampling", section
3): words and pairs of words fall into 10,000 buckets, and a document's log weight adds up, over its n-grams, the
logarithm of how much likelier their buckets are in the target text than in the corpus. Two things are other here:

- The weight is a mean over the n-grams, not their sum. DSIR's examples are all of 128 words; where one has 20 and
  another 5,000, the sum is little more than their length. The mean is the difference of two cross-entropies by which
  Moore and Lewis (2010, "Intelligent Selection of Language Model Training Data", section 2) select.
- The highest weights are kept. DSIR adds Gumbel noise to draw without replacement, which makes a difference where
  weights lie close together; the logarithms of whole documents differ by hundreds.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.base.progress import Progress
from domainbert.corpus.ngrams import hash_ngrams, hash_words, words_of

BUCKETS = 10_000
_UNIT = 2.0**32


@dataclass(frozen=True)
class Selection:
    """The log weight of each document, in nats per n-gram, and whether it is kept; in the order of the documents."""

    weights: NDArray[np.float64]
    kept: NDArray[np.bool_]

    def mean(self, kept: bool) -> float | None:
        """The mean log weight of the documents that are kept, or dropped; None if there are none."""
        chosen = self.weights[self.kept == kept]
        return float(chosen.mean()) if len(chosen) else None


def select(like: Iterable[str], texts: Callable[[], Iterable[str]], keep: float) -> Selection:
    """Keep the part of the texts that is most like others; of equal ones the first.

    `texts` is read twice, always the same: for its n-grams, then for the weights, 8 bytes a text.

    Raises:
        DomainbertError: there is no word in the others.
    """
    target = count_buckets(text for text in like if words_of(text))
    if not target.any():
        raise DomainbertError("select.like: no words; expected text of the task")
    with Progress("select: count n-grams") as progress:
        ratio = log_ratio(target, count_buckets(_counted(texts(), progress)))
    weights = array("d")
    with Progress("select: weigh") as progress:
        for text in _counted(texts(), progress):
            weights.append(float(ratio[buckets_of(text)].mean()))
    found = np.array(weights, np.float64)
    kept = np.zeros(len(found), np.bool_)
    kept[np.argsort(-found, kind="stable")[: _number_kept(keep, len(found))]] = True
    return Selection(found, kept)


def buckets_of(text: str) -> NDArray[np.int64]:
    """The bucket of each word and of each pair of words; a text without a word counts as one empty word."""
    hashes = hash_words(words_of(text) or [""])
    both = np.concatenate([hashes, hash_ngrams(hashes, 2)])
    return (both % np.uint64(BUCKETS)).astype(np.int64)


def count_buckets(texts: Iterable[str]) -> NDArray[np.int64]:
    """The number of n-grams of the texts that fall into each bucket, (BUCKETS,)."""
    counts = np.zeros(BUCKETS, np.int64)
    for text in texts:
        np.add.at(counts, buckets_of(text), 1)
    return counts


def log_ratio(target: NDArray[np.int64], raw: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logarithms of how much likelier each bucket is in the target than in the raw text, (BUCKETS,).

    A target may be small. As many n-grams as there are buckets are added to it, spread as in the raw text (a Dirichlet
    prior: Zhai and Lafferty 2001, "A Study of Smoothing Methods for Language Models"), so that what it lacks counts
    against a document alike, however rare it is; and one n-gram to each bucket of the raw text.

    The logarithms are rounded to multiples of 2**-32: so sums of them are exact in whatever order they are added, and
    documents that are equally near are equal.
    """
    usual = (raw + 1) / (raw.sum() + BUCKETS)
    likely = (target + BUCKETS * usual) / (target.sum() + BUCKETS)
    return np.round((np.log(likely) - np.log(usual)) * _UNIT) / _UNIT


def _counted(texts: Iterable[str], progress: Progress) -> Iterator[str]:
    for text in texts:
        yield text
        progress.advance()


def _number_kept(keep: float, documents: int) -> int:
    return min(documents, max(1, math.floor(keep * documents + 0.5)))
