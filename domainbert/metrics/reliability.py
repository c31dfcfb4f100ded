"""Reliability: the share of right predictions beside the confidence of the model in them.

The expected calibration error is that of Naeini, Cooper and Hauskrecht (2015, "Obtaining well calibrated probabilities
using Bayesian binning", AAAI), in use for neural networks since Guo et al. (2017, arXiv:1706.04599). Its bins hold as
many predictions each (Nixon et al. 2019, "Measuring calibration in deep learning", arXiv:1904.01685, section 3.3): of
equal width most would be nearly empty, as most predictions are sure ones. The Brier score (Brier 1950) is that of being
right or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

BINS = 15


def reliability(predictions: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """`bins`, from the least sure to the surest, `ece` and `brier` of predictions: the probability of each, and whether
    it is right. There has to be one.

    A bin has the mean `confidence`, the `accuracy`, and the `count` of its predictions. Its edges are quantiles, and
    predictions of one probability are in one bin, whatever their order, so that there may be fewer than 15 bins.
    """
    confidence, right = np.asarray(predictions, dtype=np.float64).T
    edges = np.percentile(confidence, 100 * np.linspace(0, 1, BINS + 1)[1:-1])
    sums = np.zeros((BINS, 3))
    np.add.at(sums, np.searchsorted(edges, confidence), np.stack([confidence, right, np.ones_like(right)], axis=1))
    sums = sums[sums[:, 2] > 0]
    means, counts = sums[:, :2] / sums[:, 2:], sums[:, 2].astype(np.int64)
    rows = zip(*means.T.tolist(), counts.tolist(), strict=True)
    return {
        "bins": [{"confidence": c, "accuracy": a, "count": n} for c, a, n in rows],
        "ece": float(np.abs(sums[:, 0] - sums[:, 1]).sum() / len(right)),
        "brier": float(np.mean((confidence - right) ** 2)),
    }
