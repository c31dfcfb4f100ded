"""Settings of optimiser, learning-rate schedule and weight averaging. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Count, Fraction, PositiveFraction, Range
from domainbert.base.validation import check_fields

Beta = Annotated[float, Range(0, 1, exclude_high=True)]


@dataclass(frozen=True)
class OptimConfig:
    """Optimiser settings.

    >>> from domainbert import AdamW, OptimConfig
    >>> AdamW(lr=1e-4, layer_decay=0.9) == OptimConfig("adamw", lr=1e-4, layer_decay=0.9)
    True
    """

    name: Literal["adamw", "muon"] = "adamw"
    """`adamw`, or `muon`: Muon for the hidden weight matrices and AdamW for all other parameters."""

    lr: PositiveFraction = 5e-4
    """Peak learning rate. Muon's updates are scaled to the size of AdamW's, so that both use the same rate."""

    head_lr: PositiveFraction | None = None
    """Peak learning rate of a fine-tuning head; None takes `lr`."""

    layer_decay: PositiveFraction = 1.0
    """Multiply the learning rate by this factor at each layer from the top down to the embeddings; the top layer has
    `lr`, the head `head_lr`. 1 disables it."""

    weight_decay: Fraction = 0.01
    """Decoupled weight decay; not applied to biases, norms and embeddings."""

    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """Decay rates of AdamW's moments."""

    eps: PositiveFraction = 1e-6
    """Term added to AdamW's denominator."""

    max_grad_norm: Annotated[float, Range(0, 1e6)] = 1.0
    """Clip the gradient to this norm; 0 disables clipping."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)


AdamW = OptimConfig
"""`OptimConfig` under the name of its default optimiser.

>>> from domainbert import AdamW
>>> AdamW(lr=1e-4).name
'adamw'
"""


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning-rate schedule over the optimiser steps.

    >>> from domainbert import ScheduleConfig
    >>> ScheduleConfig("cosine", warmup_steps=500).name
    'cosine'
    """

    name: Literal["linear", "cosine", "wsd", "constant"] = "linear"
    """Decay after the warm-up: linear, cosine, none, or `wsd`: constant, then 1 - sqrt decay at the end."""

    warmup_steps: Count | None = None
    """Steps of linear warm-up; None takes `warmup_fraction`."""

    warmup_fraction: Fraction = 0.06
    """Fraction of all steps used for warm-up, unless `warmup_steps` is given."""

    decay_fraction: Fraction = 0.2
    """Fraction of all steps, at the end, in which `wsd` decays."""

    min_lr_ratio: Fraction = 0.0
    """Final learning rate as a fraction of the peak."""

    def __post_init__(self) -> None:
        """Check the fractions."""
        check_fields(self)
        warmup = self.warmup_fraction if self.warmup_steps is None else 0.0
        if self.name == "wsd" and warmup + self.decay_fraction > 1:
            found = f"{self.decay_fraction:g} with warmup_fraction {warmup:g}"
            raise DomainbertError(f"decay_fraction: found {found}; expected a sum of at most 1")


@dataclass(frozen=True)
class AveragingConfig:
    """Weight averaging over optimiser steps; validation and the saved model use the average."""

    name: Literal["ema", "last"]
    """`ema`: exponential moving average from the first step. `last`: mean over the final `fraction` of the steps."""

    decay: Beta = 0.999
    """Decay rate of `ema`: relative weight of a step compared with the next; 0.999 averages about 1,000 steps."""

    fraction: PositiveFraction = 0.25
    """Fraction of all steps, at the end, that `last` averages."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
