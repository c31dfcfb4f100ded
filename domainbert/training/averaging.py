"""Weight averaging over optimiser steps: validation and the saved model use the average."""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule, Trainer
from torch import Tensor, nn

from domainbert.training.callbacks import StatefulCallback
from domainbert.training.config import AveragingConfig


def averaging_coefficient(config: AveragingConfig, step: int, num_steps: int) -> float:
    """Return the coefficient of the current weights in the running average after `step` (from 1 to `num_steps`).

    `ema` is a bias-corrected moving average: after t steps, step i has the coefficient
    (1 - decay) decay^(t - i) / (1 - decay^t) (Kingma and Ba 2015, arXiv:1412.6980, section 7.2), so the initial
    weights, with their random head, have none. `last` is the mean over the final steps (Izmailov et al. 2018,
    arXiv:1803.05407, algorithm 1, after each step); earlier steps have the coefficient 0.
    """
    if config.name == "ema":
        return (1 - config.decay) / (1 - config.decay**step)
    first_averaged = num_steps - max(1, round(config.fraction * num_steps)) + 1
    return 1 / (step - first_averaged + 1) if step >= first_averaged else 0.0


class Averaging(StatefulCallback):
    """Callback that averages the trainable weights; swaps the average in for each validation and at the end of
    training.

    The average needs as much memory as the trainable weights (fp32) and is saved in checkpoints. With `ddp` each
    process holds the same average. Must follow `KeepBest`, which copies the validated weights.
    """

    state_attributes = ("average",)

    def __init__(self, config: AveragingConfig, num_steps: int) -> None:
        self.config, self.num_steps = config, num_steps
        self.average: dict[str, Tensor] = {}  # by name; empty before the first averaged step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move the average of a checkpoint to the device of the weights."""
        parameters = dict(pl_module.named_parameters())
        self.average = {name: value.to(parameters[name].device) for name, value in self.average.items()}

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the average after an optimiser step."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:  # more micro-batches of this step follow
            return
        coefficient = averaging_coefficient(self.config, trainer.global_step, self.num_steps)
        if not coefficient:  # before the first averaged step
            return
        for name, parameter in _trainable_parameters(pl_module).items():
            if name in self.average:
                self.average[name].lerp_(parameter, coefficient)
            else:  # the first averaged step, whose coefficient is 1
                self.average[name] = parameter.clone()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace the weights by the average."""
        self._swap_weights(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the weights of the last step."""
        self._swap_weights(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the average in the module."""
        self._swap_weights(pl_module)

    def _swap_weights(self, module: nn.Module) -> None:
        """Swap the weights and the average without a copy; do nothing while there is no average."""
        for name, parameter in _trainable_parameters(module).items():
            if name in self.average:
                parameter.data, self.average[name] = self.average[name], parameter.data


def _trainable_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
