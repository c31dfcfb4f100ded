"""Base rate of a binary label: the loss of the best constant prediction."""

from __future__ import annotations

import math

_MARGIN = 0.05  # share of the base-rate entropy by which the loss of a useful head is lower


def entropy(probability: float) -> float:
    """Return the entropy of an event with this probability, in nats; 0 for a probability of 0 or 1."""
    return -sum(p * math.log(p) for p in (probability, 1 - probability) if p > 0)


def beats_base_rate(loss: float, base_rate_entropy: float) -> bool:
    """Return whether a loss is more than 5 % below the base-rate entropy; both in nats per item."""
    return loss < (1 - _MARGIN) * base_rate_entropy
