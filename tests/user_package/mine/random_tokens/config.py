"""Settings of the objective; does not import torch."""

from dataclasses import dataclass

from domainbert.pretraining.config import ObjectiveConfig, Rate


@dataclass(frozen=True)
class RandomTokens(ObjectiveConfig):
    """Detect tokens that were replaced by random tokens (Di Liello et al. 2022, arXiv:2210.13536)."""

    name = "random token substitution"

    rate: Rate = 0.15
    """Share of the tokens of a row to replace."""
