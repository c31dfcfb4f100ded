"""Select the documents of a corpus that are most similar to a target text, by importance weights of hashed n-grams.

The weights follow DSIR (Xie et al. 2023, "Data Selection for Language Models via Importance Resampling", section 3):
words and word bigrams are hashed into 10,000 buckets, and the log weight of a document is the sum over its n-grams of
log(p_target(bucket) / p_corpus(bucket)). There are two differences from DSIR:

- The weight is the mean over the n-grams, not the sum. DSIR's examples all have 128 words; for documents of 20 to 5,000
  words the sum mostly measures their length. The mean is the difference of two cross-entropies that Moore and Lewis
  (2010, "Intelligent Selection of Language Model Training Data", section 2) use for selection.
- The documents with the highest weights are kept. DSIR adds Gumbel noise to sample without replacement, which matters
  only for close weights; the log weights of whole documents differ by hundreds.
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
from domainbert.corpus.ngrams import hash_ngrams, hash_words, words_of_text

BUCKETS = 10_000
_LOG_UNIT = 2.0**32  # log ratios are rounded to multiples of 1 / _LOG_UNIT


@dataclass(frozen=True)
class Selection:
    """Log weight of each document in nats per n-gram, and whether it is kept; in the order of the documents."""

    weights: NDArray[np.float64]
    kept: NDArray[np.bool_]

    def mean(self, kept: bool) -> float | None:
        """Return the mean log weight of the kept or of the dropped documents; None if there are none."""
        weights = self.weights[self.kept == kept]
        return float(weights.mean()) if len(weights) else None


def select(like: Iterable[str], texts: Callable[[], Iterable[str]], keep: float) -> Selection:
    """Return the weight of each text by its similarity to `like`, and which texts are kept.

    The fraction `keep` of the texts with the highest weights is kept; of equal weights, the earlier texts.

    `texts` is called twice and must yield the same texts: for the n-gram counts, then for the weights (8 bytes each).

    Raises:
        DomainbertError: `like` has no words.
    """
    target = count_buckets(text for text in like if words_of_text(text))
    if not target.any():
        raise DomainbertError(
            where="corpus.select.like", found="no words", expected="files with texts like those to select"
        )
    with Progress("select: count n-grams") as progress:
        ratio = log_ratio(target, count_buckets(_with_progress(texts(), progress)))
    weights = array("d")
    with Progress("select: weigh") as progress:
        for text in _with_progress(texts(), progress):
            weights.append(float(ratio[ngram_buckets(text)].mean()))
    log_weights = np.array(weights, np.float64)
    rounded = math.floor(keep * len(log_weights) + 0.5)
    num_kept = min(len(log_weights), max(1, rounded))
    heaviest = np.argsort(-log_weights, kind="stable")[:num_kept]
    kept = np.zeros(len(log_weights), np.bool_)
    kept[heaviest] = True
    return Selection(log_weights, kept)


def ngram_buckets(text: str) -> NDArray[np.int64]:
    """Return the bucket of each word and word bigram, (n-grams,); a text without words counts as an empty word."""
    hashes = hash_words(words_of_text(text) or [""])
    ngrams = np.concatenate([hashes, hash_ngrams(hashes, 2)])
    return (ngrams % np.uint64(BUCKETS)).astype(np.int64)


def count_buckets(texts: Iterable[str]) -> NDArray[np.int64]:
    """Return the number of n-grams of the texts in each bucket, (BUCKETS,)."""
    counts = np.zeros(BUCKETS, np.int64)
    for text in texts:
        np.add.at(counts, ngram_buckets(text), 1)
    return counts


def log_ratio(target: NDArray[np.int64], raw: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return log(p_target / p_raw) of each bucket, where p is the probability of the bucket in a text, (BUCKETS,).

    `target` and `raw` are the n-gram counts of the target text and of the corpus, the raw text, (BUCKETS,).

    The target may be small, so it is smoothed by BUCKETS n-grams with the distribution of the raw text (a Dirichlet
    prior: Zhai and Lafferty 2001, "A Study of Smoothing Methods for Language Models"): n-grams missing in the target
    then have the same ratio, whether rare or frequent. Each bucket of the raw text gets an additional n-gram.

    The logarithms are rounded to multiples of 2**-32, so that their sums are exact in any order and equally similar
    documents have equal weights.
    """
    raw_probability = (raw + 1) / (raw.sum() + BUCKETS)
    target_probability = (target + BUCKETS * raw_probability) / (target.sum() + BUCKETS)
    return np.round((np.log(target_probability) - np.log(raw_probability)) * _LOG_UNIT) / _LOG_UNIT


def _with_progress(texts: Iterable[str], progress: Progress) -> Iterator[str]:
    for text in texts:
        yield text
        progress.advance()
