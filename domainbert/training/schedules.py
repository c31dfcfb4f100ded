"""Learning-rate schedules: a factor of the peak rate for each optimiser step."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from domainbert.base.errors import DomainbertError
from domainbert.training.optim_config import ScheduleConfig


def warmup_steps(config: ScheduleConfig, num_steps: int) -> int:
    """Return the number of warm-up steps. Raises `DomainbertError` if no step is left after them."""
    steps = config.warmup_steps if config.warmup_steps is not None else round(config.warmup_fraction * num_steps)
    if steps >= num_steps:
        raise DomainbertError(
            f"schedule.warmup_steps: found {steps:,}; expected less than the {num_steps:,} steps of the training"
        )
    return steps


def lr_factor(step: int, num_steps: int, config: ScheduleConfig) -> float:
    """Return the learning rate of optimiser step `step` (from 0 to num_steps - 1) as a fraction of the peak.

    `wsd` is warm-up, stable, decay with 1 - sqrt (Hägele et al. 2024, arXiv:2405.18392, section 3).
    """
    warmup = warmup_steps(config, num_steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(num_steps - warmup, 1)
    if config.name == "linear":
        shape = 1 - progress
    elif config.name == "cosine":
        shape = 0.5 * (1 + math.cos(math.pi * progress))
    elif config.name == "wsd":
        decay = min(max(round(config.decay_fraction * num_steps), 1), num_steps - warmup)
        shape = 1 - math.sqrt(max(0, step - (num_steps - decay)) / decay)
    else:
        shape = 1.0
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * shape


def build_schedule(optimizer: Optimizer, config: ScheduleConfig, num_steps: int) -> LambdaLR:
    """Return a torch scheduler; step it after every optimiser step."""
    return LambdaLR(optimizer, lambda step: lr_factor(min(step, num_steps - 1), num_steps, config))
