"""Calibration of the probabilities of classes: scores made of sums over texts, and the temperature that mends it.

Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks", ICML (arXiv 1706.04599).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.counts import FloatArray, IntArray

BINS = 15
"""Of equal width, by confidence; the number in the paper's tables."""

ROWS = BINS + 1
"""Rows of the sums of a text: the bins, and one for scores that need none."""

_LOWEST, _HIGHEST = 1 / 20, 20.0  # where all texts are right, likelihood would have the temperature fall to 0
_STEPS = 80  # of the search; the bracket shrinks by 0.618 in each, to less than doubles tell apart
_GOLDEN = (math.sqrt(5) - 1) / 2


def calibration_sums(probabilities: NDArray[np.floating], gold: IntArray) -> FloatArray:
    """Sums of which the scores below are made: (texts, classes) and class numbers (texts,) give (texts, 16, 3).

    Row b below 15 is (1, confidence, right) of a text whose confidence, its highest probability, lies above b/15 and
    not above (b + 1)/15. The last row is (1, negative log-likelihood, Brier score) of every text.
    """
    p, text = probabilities.astype(np.float64), np.arange(len(gold))
    confidence, of_gold = p.max(axis=1), p[text, gold]
    places = np.clip(np.searchsorted(np.arange(BINS + 1) / BINS, confidence, side="left") - 1, 0, BINS - 1)
    sums = np.zeros((len(gold), ROWS, 3))
    sums[text, places] = np.stack([np.ones(len(gold)), confidence, p.argmax(axis=1) == gold], axis=1)
    surprise = -np.log(np.maximum(of_gold, np.finfo(np.float64).tiny))
    brier = (p**2).sum(axis=1) - 2 * of_gold + 1
    sums[:, BINS] = np.stack([np.ones(len(gold)), surprise, brier], axis=1)
    return sums


def ece(sums: NDArray[Any]) -> FloatArray:
    """Expected calibration error (section 2, equation 3): the gap of accuracy and confidence in each bin, weighted by
    its texts. Sums (..., 16, 3) give (...)."""
    bins = sums[..., :BINS, :]
    return np.asarray(np.abs(bins[..., 1] - bins[..., 2]).sum(axis=-1) / sums[..., BINS, 0])


def nll(sums: NDArray[Any]) -> FloatArray:
    """Mean negative log-likelihood of the right class (log loss), in nats. Sums (..., 16, 3) give (...)."""
    return np.asarray(sums[..., BINS, 1] / sums[..., BINS, 0])


def brier(sums: NDArray[Any]) -> FloatArray:
    """Mean squared distance of the probabilities from the right class, summed over classes, 0 to 2 (Brier 1950).

    Sums (..., 16, 3) give (...).
    """
    return np.asarray(sums[..., BINS, 2] / sums[..., BINS, 0])


CALIBRATION = {"ece": ece, "nll": nll, "brier": brier}
"""The scores of `calibration_sums`, by name."""


def with_temperature(logits: NDArray[np.floating], temperature: float) -> FloatArray:
    """Softmax of logits (texts, classes) divided by a temperature, in double precision."""
    scaled = logits.astype(np.float64) / temperature
    exponentials = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def fit_temperature(logits: NDArray[np.floating], gold: IntArray) -> float:
    """The temperature from 1/20 to 20 with the lowest negative log-likelihood (section 4.2, "temperature scaling").

    A golden-section search in its logarithm: the likelihood is log-concave in 1/T, so it has one summit.
    """

    logits, text = logits.astype(np.float64), np.arange(len(gold))
    logits = logits - logits.max(axis=1, keepdims=True)

    def loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[text, gold]).mean())

    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    inner = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
    losses = [loss(one) for one in inner]
    for _ in range(_STEPS):
        if losses[0] <= losses[1]:
            high, inner[1], losses[1] = inner[1], inner[0], losses[0]
            inner[0] = high - _GOLDEN * (high - low)
            losses[0] = loss(inner[0])
        else:
            low, inner[0], losses[0] = inner[0], inner[1], losses[1]
            inner[1] = low + _GOLDEN * (high - low)
            losses[1] = loss(inner[1])
    return math.exp((low + high) / 2)


def judge_temperature(logits: NDArray[np.floating], gold: IntArray) -> dict[str, float]:
    """The best `temperature` for a validation set, and its `ece`, `nll` and `brier` with it; `uncalibrated_...` are
    those of the plain softmax."""
    temperature = fit_temperature(logits, gold)
    found = {"temperature": temperature}
    for prefix, one in (("", temperature), ("uncalibrated_", 1.0)):
        sums = calibration_sums(with_temperature(logits, one), gold).sum(axis=0)
        found |= {f"{prefix}{name}": float(score(sums)) for name, score in CALIBRATION.items()}
    return found
