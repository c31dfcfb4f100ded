"""Weight averaging over optimiser steps: validation and the saved model use the average."""

from __future__ import annotations

from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor

from domainbert.training.config import AveragingConfig


class Averaging(WeightAveraging):
    """Lightning's `WeightAveraging` with the average of a configuration over `num_steps` steps.

    The average stays in the module until `on_validation_end`, so that an earlier callback, `KeepBest`, can copy it.
    Before the first averaged step, the weights themselves are validated.
    """

    def __init__(self, config: AveragingConfig, num_steps: int) -> None:
        super().__init__(use_buffers=False, multi_avg_fn=self._update)
        self.config = config
        # number of steps before the first averaged step
        self.start = num_steps - max(1, round(config.fraction * num_steps)) if config.name == "last" else 0
        self._step = 0  # averaged steps, with the one that `_update` adds

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Return whether a step (from 0) is averaged; an epoch is not."""
        self._step = 0 if step_idx is None else step_idx + 1 - self.start
        return self._step > 0

    def _update(self, averages: Any, weights: Any, num_averaged: Tensor | int) -> None:
        coefficient = averaging_coefficient(self.config, self._step)
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight, coefficient)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace the weights by the average, if there is one."""
        if trainer.global_step > self.start:
            super().on_validation_epoch_start(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the average for the metrics of the module and for the callbacks."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the weights of the last step."""
        if trainer.global_step > self.start:
            super().on_validation_epoch_end(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the average in the module, if there is one."""
        if trainer.global_step > self.start:
            super().on_train_end(trainer, pl_module)


def averaging_coefficient(config: AveragingConfig, step: int) -> float:
    """Return the coefficient of the current weights in the running average after averaged step `step` (from 1).

    `ema` is a bias-corrected moving average: after t steps, step i has the coefficient
    (1 - decay) decay^(t - i) / (1 - decay^t) (Kingma and Ba 2015, arXiv:1412.6980, section 7.2), so the initial
    weights, with their random head, have none. `last` is the mean over the final steps (Izmailov et al. 2018,
    arXiv:1803.05407, algorithm 1, after each step).
    """
    return (1 - config.decay) / (1 - config.decay**step) if config.name == "ema" else 1 / step
