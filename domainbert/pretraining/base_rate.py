"""The base rate of two labels: the loss that is reached by saying the same of each item."""

from __future__ import annotations

import math

_LEARNT = 0.05  # of the entropy of the base rate, by which a head that has learnt is below it


def entropy(share: float) -> float:
    """That of an event with this probability, in nats."""
    return -sum(p * math.log(p) for p in (share, 1 - share) if p > 0)


def is_learnt(loss: float, base_rate_entropy: float) -> bool:
    """Whether a loss is clearly below what the base rate gives; both in nats per item."""
    return loss < (1 - _LEARNT) * base_rate_entropy
