"""How often predictions are right beside how sure the model is of them.

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
    edges = np.percentile(confidence, 100 * np.arange(1, BINS) / BINS)
    numbers = np.searchsorted(edges, confidence)
    counts = np.bincount(numbers, minlength=BINS)
    filled = counts > 0
    sums = (np.bincount(numbers, weights=one, minlength=BINS) for one in (confidence, right))
    counts, (sure, accurate) = counts[filled], (one[filled] / counts[filled] for one in sums)
    rows = zip(sure.tolist(), accurate.tolist(), counts.tolist(), strict=True)
    return {
        "bins": [{"confidence": c, "accuracy": a, "count": n} for c, a, n in rows],
        "ece": float((np.abs(sure - accurate) * counts).sum() / counts.sum()),
        "brier": float(np.mean((confidence - right) ** 2)),
    }
