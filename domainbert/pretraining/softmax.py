"""Losses of a softmax over the vocabulary: cross-entropy, and the z-loss that keeps its normaliser near 1."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from domainbert.data.types import IGNORED
from domainbert.pretraining.objective import Term

_Z_LOSS = "z_loss"


def softmax_terms(name: str, term: Term, z_loss: float) -> dict[str, Term]:
    """The terms of `softmax_losses`: the cross-entropy's, and beside it the z-loss where it has a factor."""
    return {name: term, **({_Z_LOSS: Term(z_loss, term.count)} if z_loss else {})}


def softmax_losses(name: str, logits: Tensor, targets: Tensor, z_loss: float) -> dict[str, Tensor]:
    """Losses of logits (N, V) for targets (N,), summed over those that are not `IGNORED`. Scalars."""
    found = {name: cross_entropy(logits, targets)}
    return found | {_Z_LOSS: squared_normaliser(logits, targets)} if z_loss else found


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """That of the targets, in nats, in fp32."""
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")


def squared_normaliser(logits: Tensor, targets: Tensor) -> Tensor:
    """log(Z)^2, with Z the sum of the exponentials of a token's logits (Chowdhery et al. 2022, PaLM, section 5)."""
    return logits.float().logsumexp(dim=-1).square().masked_fill(targets == IGNORED, 0.0).sum()
