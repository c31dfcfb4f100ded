"""Calibration of class probabilities: scores computed from sums over texts, and temperature scaling.

Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks", ICML (arXiv 1706.04599).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.counts import FloatArray, IntArray

BINS = 15
"""Bins of equal width by confidence; 15 as in the paper's tables."""

ROWS = BINS + 1
"""Rows of the sums of a text: the bins, and one row for scores without bins."""

_LOWEST, _HIGHEST = 1 / 20, 20.0  # if all texts are correct, the likelihood is maximal at temperature 0
_STEPS = 80  # each step shrinks the bracket to 0.618 of its size: 80 steps reach the precision of doubles
_GOLDEN = (math.sqrt(5) - 1) / 2


def calibration_sums(probabilities: NDArray[np.floating], gold: IntArray) -> FloatArray:
    """Return the terms of the scores below: (texts, classes) and class numbers (texts,) give (texts, 16, 3).

    Row b < 15 is (1, confidence, correct) of texts with b/15 < confidence (highest probability) <= (b + 1)/15. The last
    row is (1, negative log-likelihood, Brier score) of every text.
    """
    p, text = probabilities.astype(np.float64), np.arange(len(gold))
    confidence, gold_p = p.max(axis=1), p[text, gold]
    bins = np.clip(np.searchsorted(np.arange(BINS + 1) / BINS, confidence, side="left") - 1, 0, BINS - 1)
    sums = np.zeros((len(gold), ROWS, 3))
    sums[text, bins] = np.stack([np.ones(len(gold)), confidence, p.argmax(axis=1) == gold], axis=1)
    surprise = -np.log(np.maximum(gold_p, np.finfo(np.float64).tiny))
    brier = (p**2).sum(axis=1) - 2 * gold_p + 1
    sums[:, BINS] = np.stack([np.ones(len(gold)), surprise, brier], axis=1)
    return sums


def ece(sums: NDArray[Any]) -> FloatArray:
    """Expected calibration error (section 2, equation 3): mean |accuracy - confidence| of the bins, weighted by their
    texts. Sums (..., 16, 3) give (...)."""
    bins = sums[..., :BINS, :]
    return np.asarray(np.abs(bins[..., 1] - bins[..., 2]).sum(axis=-1) / sums[..., BINS, 0])


def nll(sums: NDArray[Any]) -> FloatArray:
    """Mean negative log-likelihood of the gold class (log loss), in nats. Sums (..., 16, 3) give (...)."""
    return np.asarray(sums[..., BINS, 1] / sums[..., BINS, 0])


def brier(sums: NDArray[Any]) -> FloatArray:
    """Brier score (Brier 1950), summed over classes, 0 to 2. Sums (..., 16, 3) give (...)."""
    return np.asarray(sums[..., BINS, 2] / sums[..., BINS, 0])


CALIBRATION = {"ece": ece, "nll": nll, "brier": brier}
"""Scores of `calibration_sums`, by name."""


def with_temperature(logits: NDArray[np.floating], temperature: float) -> FloatArray:
    """Return the softmax of logits (texts, classes) / temperature in double precision."""
    scaled = logits.astype(np.float64) / temperature
    exponentials = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def fit_temperature(logits: NDArray[np.floating], gold: IntArray) -> float:
    """Fit the temperature (1/20 to 20) with the lowest negative log-likelihood (section 4.2, "temperature scaling").

    Golden-section search over the logarithm: the likelihood is log-concave in 1/T, so it has a single maximum.
    """
    logits, text = logits.astype(np.float64), np.arange(len(gold))
    logits = logits - logits.max(axis=1, keepdims=True)

    def loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[text, gold]).mean())

    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    inner = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
    losses = [loss(value) for value in inner]
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
    """Fit `temperature` on a validation set; return it with `ece`, `nll` and `brier`, and the same scores of the plain
    softmax under `uncalibrated_...`."""
    temperature = fit_temperature(logits, gold)
    scores = {"temperature": temperature}
    for prefix, divisor in (("", temperature), ("uncalibrated_", 1.0)):
        sums = calibration_sums(with_temperature(logits, divisor), gold).sum(axis=0)
        scores |= {f"{prefix}{name}": float(score(sums)) for name, score in CALIBRATION.items()}
    return scores
