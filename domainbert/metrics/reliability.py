"""Reliability: accuracy of predictions as a function of their confidence.

Expected calibration error: Naeini, Cooper and Hauskrecht (2015, "Obtaining well calibrated probabilities using Bayesian
binning", AAAI), for neural networks Guo et al. (2017, arXiv:1706.04599). Bins have equal numbers of predictions (Nixon
et al. 2019, "Measuring calibration in deep learning", arXiv:1904.01685, section 3.3): of bins with equal width, most
would be nearly empty, because most confidences are high. Brier score (Brier 1950) of the event "correct".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

BINS = 15
"""Maximum number of bins."""


def reliability(predictions: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """Return `bins` (by ascending confidence), `ece` and `brier` of predictions (probability, whether it is correct).

    A bin has the mean `confidence`, the `accuracy` and the `count` of its predictions. Edges are quantiles, and equal
    probabilities are in the same bin, so there may be fewer than 15 bins. `predictions` must not be empty.
    """
    confidence, correct = np.asarray(predictions, dtype=np.float64).T
    edges = np.percentile(confidence, 100 * np.linspace(0, 1, BINS + 1)[1:-1])
    sums = np.zeros((BINS, 3))
    np.add.at(sums, np.searchsorted(edges, confidence), np.stack([confidence, correct, np.ones_like(correct)], axis=1))
    sums = sums[sums[:, 2] > 0]
    means, counts = sums[:, :2] / sums[:, 2:], sums[:, 2].astype(np.int64)
    rows = zip(*means.T.tolist(), counts.tolist(), strict=True)
    return {
        "bins": [{"confidence": c, "accuracy": a, "count": n} for c, a, n in rows],
        "ece": float(np.abs(sums[:, 0] - sums[:, 1]).sum() / len(correct)),
        "brier": float(np.mean((confidence - correct) ** 2)),
    }
