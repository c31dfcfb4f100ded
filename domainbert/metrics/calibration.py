"""Calibration of class probabilities: scores computed from sums over texts, and temperature scaling.

Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks", ICML (arXiv 1706.04599).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.counts import FloatArray, IntArray, score_counts

BINS = 15
"""Bins of equal width by confidence; 15 as in the paper's tables."""

ROWS = BINS + 1
"""Rows of `calibration_sums`: one for each bin, and one for the scores without bins."""

# bounds, because the likelihood is maximal at temperature 0 if all texts are correct
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 1 / 20, 20.0
_STEPS = 80  # each step shrinks the bracket to 0.618 of its size: 80 steps reach the precision of doubles
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


def calibration_sums(probabilities: NDArray[np.floating], gold: IntArray) -> FloatArray:
    """Return the terms of `ece`, `nll` and `brier`, to be summed over texts: (texts, 16, 3).

    `probabilities` are (texts, classes), `gold` (texts,) are class ids.
    Row b < 15 is (1, confidence, correct) of texts with b/15 < confidence (highest probability) <= (b + 1)/15. The last
    row is (1, negative log-likelihood, Brier score) of every text.
    """
    p, text_index = probabilities.astype(np.float64), np.arange(len(gold))
    confidence, gold_p = p.max(axis=1), p[text_index, gold]
    edges = np.arange(BINS + 1) / BINS
    bins = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, BINS - 1)  # (texts,)
    is_correct = p.argmax(axis=1) == gold
    terms = np.zeros((len(gold), ROWS, 3))
    terms[text_index, bins] = np.stack([np.ones(len(gold)), confidence, is_correct], axis=1)
    negative_log_likelihood = -np.log(np.maximum(gold_p, np.finfo(np.float64).tiny))  # finite for probability 0
    # the sum over classes of (p - y)², where y is 1 for the gold class and 0 for the other classes
    brier = (p**2).sum(axis=1) - 2 * gold_p + 1
    terms[:, BINS] = np.stack([np.ones(len(gold)), negative_log_likelihood, brier], axis=1)
    return terms


def ece(sums: NDArray[Any]) -> FloatArray:
    """Return the expected calibration error: mean |accuracy - confidence| of the bins, weighted by number of texts
    (Guo et al. 2017, equation 3). Summed `calibration_sums` (..., 16, 3) give (...)."""
    confidence, correct, num_texts = sums[..., :BINS, 1], sums[..., :BINS, 2], sums[..., BINS, 0]
    return np.asarray(np.abs(confidence - correct).sum(axis=-1) / num_texts)


def nll(sums: NDArray[Any]) -> FloatArray:
    """Return the mean negative log-likelihood of the gold class (log loss), in nats. Summed `calibration_sums`
    (..., 16, 3) give (...)."""
    num_texts, negative_log_likelihood = sums[..., BINS, 0], sums[..., BINS, 1]
    return np.asarray(negative_log_likelihood / num_texts)


def brier(sums: NDArray[Any]) -> FloatArray:
    """Return the Brier score (Brier 1950), summed over classes, 0 to 2. Summed `calibration_sums` (..., 16, 3) give
    (...)."""
    num_texts, brier_scores = sums[..., BINS, 0], sums[..., BINS, 2]
    return np.asarray(brier_scores / num_texts)


CALIBRATION = {"ece": ece, "nll": nll, "brier": brier}
"""Functions from summed `calibration_sums` to scores, by name."""


def softmax_with_temperature(logits: NDArray[np.floating], temperature: float) -> FloatArray:
    """Return the softmax of logits (texts, classes) / temperature in double precision."""
    scaled = logits.astype(np.float64) / temperature
    exponentials = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def fit_temperature(logits: NDArray[np.floating], gold: IntArray) -> float:
    """Return the temperature (1/20 to 20) with the lowest negative log-likelihood (Guo et al. 2017, section 4.2).

    Golden-section search over the logarithm: the likelihood is log-concave in 1/T, so it has a single maximum.
    """
    logits, text_index = logits.astype(np.float64), np.arange(len(gold))
    logits = logits - logits.max(axis=1, keepdims=True)  # no overflow of the exponential

    def loss(log_temperature: float) -> float:
        """Return the mean negative log-likelihood of the gold classes."""
        scaled = logits / math.exp(log_temperature)
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[text_index, gold]).mean())

    low, high = math.log(_MIN_TEMPERATURE), math.log(_MAX_TEMPERATURE)
    left = high - _GOLDEN_RATIO * (high - low)
    right = low + _GOLDEN_RATIO * (high - low)
    left_loss, right_loss = loss(left), loss(right)
    for _ in range(_STEPS):  # each step needs only one new loss: the other point stays
        if left_loss <= right_loss:
            high, right, right_loss = right, left, left_loss
            left = high - _GOLDEN_RATIO * (high - low)
            left_loss = loss(left)
        else:
            low, left, left_loss = left, right, right_loss
            right = low + _GOLDEN_RATIO * (high - low)
            right_loss = loss(right)
    return math.exp((low + high) / 2)


def temperature_scores(logits: NDArray[np.floating], gold: IntArray) -> dict[str, float]:
    """Return the `temperature` that fits a validation set best, and its scores.

    The scores are `ece`, `nll` and `brier` with this temperature, and the same scores of the softmax without it under
    `uncalibrated_...`.
    """
    temperature = fit_temperature(logits, gold)
    scores = {"temperature": temperature}
    for prefix, divisor in (("", temperature), ("uncalibrated_", 1.0)):
        sums = calibration_sums(softmax_with_temperature(logits, divisor), gold).sum(axis=0)
        scores |= {f"{prefix}{name}": score for name, score in score_counts(CALIBRATION, sums).items()}
    return scores
