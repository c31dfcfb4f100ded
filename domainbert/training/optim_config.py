"""Settings of training that change its outcome: optimiser and schedule. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Count, Fraction, PositiveFraction, Range
from domainbert.base.validation import check_fields

Beta = Annotated[float, Range(0, 1, below=True)]


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser.

    >>> from domainbert import AdamW, OptimConfig
    >>> AdamW(lr=1e-4, layer_decay=0.9) == OptimConfig("adamw", lr=1e-4, layer_decay=0.9)
    True
    """

    name: Literal["adamw", "muon"] = "adamw"
    """`adamw`, or `muon` for the hidden weight matrices with AdamW for everything else."""

    lr: PositiveFraction = 5e-4
    """Peak learning rate; Muon's updates are scaled to the size of AdamW's, so that one rate serves both."""

    head_lr: PositiveFraction | None = None
    """Peak learning rate of a fine-tuning head; None takes `lr`."""

    layer_decay: PositiveFraction = 1.0
    """Each layer below the top learns at this multiple of the rate of the one above, the embeddings below the first
    layer; the top one has `lr`, the head `head_lr`. 1 switches it off."""

    weight_decay: Fraction = 0.01
    """Decoupled weight decay; biases, norms and embeddings have none."""

    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """Decay of AdamW's running means."""

    eps: PositiveFraction = 1e-6
    """Added to AdamW's denominator."""

    max_grad_norm: Annotated[float, Range(0, 1e6)] = 1.0
    """Gradients with a larger norm are scaled down to it; 0 switches it off."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_fields(self)


AdamW = OptimConfig  # the name of its default, as Python code reads best


@dataclass(frozen=True)
class ScheduleConfig:
    """The learning rate over the optimiser steps.

    >>> from domainbert import ScheduleConfig
    >>> ScheduleConfig("cosine", warmup_steps=500).name
    'cosine'
    """

    name: Literal["linear", "cosine", "wsd", "constant"] = "linear"
    """After the warm-up: falling linearly or as a cosine; `wsd` stays constant and falls as 1 - sqrt at the end."""

    warmup_steps: Count | None = None
    """Steps of linear warm-up; None takes `warmup_fraction`."""

    warmup_fraction: Fraction = 0.06
    """Share of all steps that warm up, unless `warmup_steps` is given."""

    decay_fraction: Fraction = 0.2
    """Share of all steps at the end over which `wsd` falls."""

    min_lr_ratio: Fraction = 0.0
    """The last learning rate as a share of the peak."""

    def __post_init__(self) -> None:
        """Check the shares."""
        check_fields(self)
        warmup = self.warmup_fraction if self.warmup_steps is None else 0.0
        if self.name == "wsd" and warmup + self.decay_fraction > 1:
            found = f"{self.decay_fraction:g} beside warmup_fraction {warmup:g}"
            raise DomainbertError(f"decay_fraction: {found}; expected at most 1 together")


@dataclass(frozen=True)
class AveragingConfig:
    """The average of the weights after each optimiser step, which takes their place at validation and in the folder."""

    name: Literal["ema", "last"]
    """`ema`: an exponential moving average from the first step on. `last`: the mean over the last part of the steps."""

    decay: Beta = 0.999
    """Of `ema`: a step weighs so much less than the one after it; 0.999 remembers about a thousand steps."""

    fraction: PositiveFraction = 0.25
    """Of `last`: the share of all steps, at the end, that are averaged; until then nothing is."""

    def __post_init__(self) -> None:
        """Check the shares."""
        check_fields(self)
