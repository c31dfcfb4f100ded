"""Logging without GPU synchronisation: values are logged only in logged steps, and as tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from domainbert.training.lightning_internals import is_logged_step


def log_step(module: LightningModule, values: Mapping[str, Tensor | float]) -> None:
    """Log values by name if the current optimizer step is logged (`log_every_n_steps`) or the last.

    Floats become tensors: Lightning would copy a float from pageable memory, which waits for all queued kernels.
    """
    if is_logged_step(module.trainer):
        for name, value in values.items():
            module.log(name, value if isinstance(value, Tensor) else torch.tensor(value))


def can_read_without_waiting(trainer: Trainer, value: Tensor) -> bool:
    """Return whether reading `value` causes no extra GPU wait: it is on the CPU, or the current step is logged."""
    return value.device.type == "cpu" or is_logged_step(trainer)
