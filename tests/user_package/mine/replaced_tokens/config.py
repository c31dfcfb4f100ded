"""Settings of the detection of replaced tokens. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass

from domainbert.pretraining.config import ObjectiveConfig


@dataclass(frozen=True)
class ReplacedTokens(ObjectiveConfig):
    """Tell the tokens that a small generator has put in place of hidden ones (Clark et al. 2020)."""

    name = "replaced tokens"

    weight: float = 50.0
    """Factor of the discriminator's loss."""

    last_rate: float = 0.3
    """Share of the tokens that are hidden from the eleventh step on; it rises from 0.15."""

    keep_generator: bool = True
    """Whether the generator gets a folder, too."""
