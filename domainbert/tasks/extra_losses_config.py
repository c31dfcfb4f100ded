"""Settings of additional losses. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from domainbert.base.fields import Range, check_fields

Positive = Annotated[float, Range(0, 1e6, exclude_low=True)]


@dataclass(frozen=True)
class AdversarialConfig:
    """Adversarial training (FGM): add the loss with word embeddings perturbed along its gradient."""

    epsilon: Positive = 1.0
    """L2 norm of the perturbation, over all tokens of a text."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class RDropConfig:
    """R-Drop: read each text twice with different dropout, and penalise the divergence of the two predictions."""

    alpha: Positive = 1.0
    """Weight of the divergence, which is added to the losses of both predictions."""

    def __post_init__(self) -> None:
        check_fields(self)
