"""An average of the weights over the optimiser steps, which is validated and kept in place of the last weights."""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule, Trainer
from torch import Tensor, nn

from domainbert.training.callbacks import Remembering
from domainbert.training.optim_config import AveragingConfig


def share_of_step(config: AveragingConfig, step: int, num_steps: int) -> float:
    """Share of the weights after a step, from 1 to `num_steps`, in the average of those until then.

    `ema` is a moving average that begins at 0, divided by the sum of its weights: after t steps that of step i is
    (1 - decay) decay^(t - i) / (1 - decay^t) (Kingma and Ba 2015, arXiv:1412.6980, section 7.2), so the weights that
    the training starts from, with their random head, count for nothing. `last` is a mean over the end of the steps
    (Izmailov et al. 2018, arXiv:1803.05407, algorithm 1, after each step); 0 for the steps before.
    """
    if config.name == "ema":
        return (1 - config.decay) / (1 - config.decay**step)
    first = num_steps - max(1, round(config.fraction * num_steps)) + 1
    return 1 / (step - first + 1) if step >= first else 0.0


class Averaging(Remembering):
    """Keeps the average of the weights that learn, and puts it in their place for each validation and at the end.

    It takes as much memory as these weights, in their precision, fp32, and the average is in the checkpoints. Every
    process of `ddp` has the same one. Stands behind `KeepBest`, which takes the weights that were validated.
    """

    remembered = ("average",)

    def __init__(self, config: AveragingConfig, num_steps: int) -> None:
        self.config, self.num_steps = config, num_steps
        self.average: dict[str, Tensor] = {}  # by name; empty before the first step that counts

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring the average of a checkpoint to where the weights are."""
        parameters = dict(pl_module.named_parameters())
        self.average = {name: value.to(parameters[name].device) for name, value in self.average.items()}

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take the weights after an optimiser step into the average."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        share = share_of_step(self.config, trainer.global_step, self.num_steps)
        if not share:
            return
        for name, parameter in _learning(pl_module).items():
            if name in self.average:
                self.average[name].lerp_(parameter, share)
            else:
                self.average[name] = parameter.clone()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the average be validated."""
        self._exchange(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on from the weights of the last step."""
        self._exchange(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the average in the module."""
        self._exchange(pl_module)

    def _exchange(self, module: nn.Module) -> None:
        """Weights and average change places; nothing is copied."""
        for name, parameter in _learning(module).items():
            if name in self.average:
                parameter.data, self.average[name] = self.average[name], parameter.data


def _learning(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
