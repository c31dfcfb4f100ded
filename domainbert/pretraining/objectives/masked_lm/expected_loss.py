"""Masked-LM losses to expect from a corpus alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from domainbert.data.prepared import PreparedCorpus, PreparedSplit
from domainbert.pretraining.config import MaskingConfig

_LEARNT = 0.3  # nats per token
_CHUNK = 1_000_000  # tokens counted at once
FloatArray = NDArray[np.float64]


def unigram_entropy(corpus: PreparedCorpus) -> float:
    """The loss of guessing by frequency: nats per validation token under the training split's token frequencies.

    A model that has not beaten it has learnt nothing about context. Frequencies are smoothed by adding one.
    """
    train = _frequencies(corpus.train, corpus.vocab_size) + 1
    validation = _frequencies(corpus.validation, corpus.vocab_size)
    return float(-(validation * np.log(train / train.sum())).sum() / max(validation.sum(), 1))


def loss_without_context(corpus: PreparedCorpus, masking: MaskingConfig) -> float:
    """The loss of masked LM that is reached without reading any context: nats per masked token of validation.

    Where a token is hidden, that is guessing by frequency. Where it was left as it is or replaced at random, one entry
    is seen in its place, and the best guess is made from that entry alone (Bayes' rule on the training frequencies):
    a frequent one was hardly put there by chance. Of an entropy of 7 nats that saves some 0.7. Where masking gives away
    nothing, 0.3 nats below the entropy is the least that counts as reading.
    """
    train = (_frequencies(corpus.train, corpus.vocab_size) + 1).astype(np.float64)
    validation = _frequencies(corpus.validation, corpus.vocab_size).astype(np.float64)
    return float(_without_context(train / train.sum(), validation / max(validation.sum(), 1), masking))


def _without_context(guess: FloatArray, truth: FloatArray, masking: MaskingConfig) -> float:
    """The cross-entropy of that guess; both (V,), the shares of each entry in training and validation."""
    each = masking.random_share / len(guess)  # how often one entry replaces another
    kept = 1 - masking.mask_share - masking.random_share
    hidden = -(truth * np.log(guess)).sum()
    loss = masking.mask_share * hidden
    seen = kept * guess + each
    if kept > 0:
        loss -= kept * (truth * np.log((kept + each) * guess / seen)).sum()
    if each > 0:
        loss += masking.random_share * (hidden + np.log(seen / each).mean()) - each * np.log((kept + each) / each)
    return min(float(loss), float(hidden) - _LEARNT)


def _frequencies(split: PreparedSplit, vocab_size: int) -> NDArray[np.int64]:
    counts = np.zeros(vocab_size, dtype=np.int64)
    for chunk in _chunks(split):
        counts += np.bincount(chunk, minlength=vocab_size)
    return counts


def _chunks(split: PreparedSplit) -> Iterator[NDArray[np.integer]]:
    for start in range(0, split.num_tokens, _CHUNK):
        yield split.take(start, min(start + _CHUNK, split.num_tokens))
