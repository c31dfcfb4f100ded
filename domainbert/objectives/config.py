"""Settings of training that change its outcome: optimiser and schedule. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from domainbert.errors import DomainbertError


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser."""

    name: Literal["adamw", "muon"] = "adamw"
    """`adamw`, or `muon` for the hidden weight matrices with AdamW for everything else."""

    lr: float = 5e-4
    """Peak learning rate; Muon's updates are scaled to the size of AdamW's, so that one rate serves both."""

    head_lr: float | None = None
    """Peak learning rate of a fine-tuning head; None takes `lr`."""

    layer_decay: float = 1.0
    """Each layer below the top learns at this multiple of the rate of the one above; 1 switches it off."""

    weight_decay: float = 0.01
    """Decoupled weight decay; biases, norms and embeddings have none."""

    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of AdamW's running means."""

    eps: float = 1e-6
    """Added to AdamW's denominator."""

    max_grad_norm: float = 1.0
    """Gradients with a larger norm are scaled down to it; 0 switches it off."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("lr", "layer_decay", "eps"):
            if getattr(self, name) <= 0:
                raise DomainbertError(f"{name}: found {getattr(self, name)}; expected a positive number")
        for name in ("weight_decay", "max_grad_norm"):
            if getattr(self, name) < 0:
                raise DomainbertError(f"{name}: found {getattr(self, name)}; expected 0 or more")


@dataclass(frozen=True)
class ScheduleConfig:
    """The learning rate over the optimiser steps."""

    name: Literal["linear", "cosine", "wsd", "constant"] = "linear"
    """After the warm-up: falling linearly or as a cosine; `wsd` stays constant and falls as 1 - sqrt at the end."""

    warmup_steps: int | None = None
    """Steps of linear warm-up; None takes `warmup_fraction`."""

    warmup_fraction: float = 0.06
    """Share of all steps that warm up, unless `warmup_steps` is given."""

    decay_fraction: float = 0.2
    """Share of all steps at the end over which `wsd` falls."""

    min_lr_ratio: float = 0.0
    """The last learning rate as a share of the peak."""

    def __post_init__(self) -> None:
        """Check the shares."""
        for name in ("warmup_fraction", "decay_fraction", "min_lr_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise DomainbertError(f"{name}: found {getattr(self, name)}; expected between 0 and 1")
