"""Losses of a softmax (cross-entropy, z-loss) and of the best constant prediction of a binary label."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from domainbert.data.packing import IGNORE_INDEX
from domainbert.pretraining.config import CORPUS_ADVICE
from domainbert.pretraining.objective import Term

_Z_LOSS = "z_loss"


def softmax_terms(name: str, term: Term, z_loss: float) -> dict[str, Term]:
    """Return the terms of the losses of `softmax_losses`: `term` for the cross-entropy and, if `z_loss` is positive, a
    term of this weight for the z-loss."""
    return {name: term, **({_Z_LOSS: Term(z_loss, term.count)} if z_loss else {})}


def softmax_losses(name: str, logits: Tensor, targets: Tensor, z_loss: float) -> dict[str, Tensor]:
    """Return the cross-entropy under `name` and, if `z_loss` is positive, the z-loss: logits (N, V), targets (N,).

    Both are scalars, summed over targets other than `IGNORE_INDEX`, and not weighted.
    """
    losses = {name: cross_entropy(logits, targets)}
    return losses | {_Z_LOSS: squared_normaliser(logits, targets)} if z_loss else losses


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of logits (N, V), summed over the targets (N,): a scalar in nats, in fp32."""
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")


def squared_normaliser(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the z-loss: log(Z)^2, where Z is the softmax normaliser of a token, summed over the targets (Chowdhery et
    al. 2022, PaLM, section 5)."""
    return logits.float().logsumexp(dim=-1).square().masked_fill(targets == IGNORE_INDEX, 0.0).sum()


_MARGIN = 0.05  # share of the base-rate entropy by which the loss of a useful head is lower


def entropy(probability: float) -> float:
    """Return the entropy of an event with this probability, in nats; 0 for a probability of 0 or 1."""
    return -sum(p * math.log(p) for p in (probability, 1 - probability) if p > 0)


def base_rate_warnings(subject: str, loss: float, base_rate_entropy: float, consequence: str) -> list[str]:
    """Return a warning if a loss is not more than 5 % below the base-rate entropy (nats per item), otherwise []."""
    if loss < (1 - _MARGIN) * base_rate_entropy:
        return []
    reached = f"a constant prediction reaches {base_rate_entropy:.4f}"
    return [f"{subject} is {loss:.4f}, but {reached}: {consequence}; {CORPUS_ADVICE}"]
