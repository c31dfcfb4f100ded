"""Settings of losses beside a task's own. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from domainbert.base.ranges import Range
from domainbert.base.validation import check_fields

Positive = Annotated[float, Range(0, 1e6, above=True)]


@dataclass(frozen=True)
class AdversarialConfig:
    """Adversarial training (FGM): the same loss once more, with the word embeddings moved to where it rises fastest."""

    epsilon: Positive = 1.0
    """Length of the move, over all tokens of a text."""

    def __post_init__(self) -> None:
        """Check the number."""
        check_fields(self)


@dataclass(frozen=True)
class RDropConfig:
    """R-Drop: each text is read twice, with different dropout, and the two predictions are drawn to each other."""

    alpha: Positive = 1.0
    """Weight of their divergence, beside the losses of both."""

    def __post_init__(self) -> None:
        """Check the number."""
        check_fields(self)
