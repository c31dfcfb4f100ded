"""What the LightningModules share: optimiser, schedule, clipping, and the scale of a micro-batch's loss."""

from __future__ import annotations

import lightning
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from domainbert.encoders.heads import EncoderWithHead
from domainbert.objectives.config import OptimConfig, ScheduleConfig
from domainbert.objectives.optimisers import build_optimizer
from domainbert.objectives.schedules import build_schedule


class TrainedModule(lightning.LightningModule):
    """A model with its optimiser and schedule; subclasses add the steps.

    Args:
        model: the encoder with its head.
        optim: optimiser settings.
        schedule: learning-rate settings.
        num_steps: optimiser steps of the whole training.
    """

    def __init__(self, model: EncoderWithHead, optim: OptimConfig, schedule: ScheduleConfig, num_steps: int) -> None:
        super().__init__()
        self.model = model
        self.optim, self.schedule, self.num_steps = optim, schedule, num_steps

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Optimiser and schedule, the latter stepped after every optimiser step."""
        # With 16-mixed a fused optimiser undoes the loss scale inside its step: too late for clipping.
        optimizer = build_optimizer(self.model, self.optim, fused=self.trainer.precision != "16-mixed")
        schedule = build_schedule(optimizer, self.schedule, self.num_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Scale the gradient down to `optim.max_grad_norm`; Lightning's own clipping refuses fused optimisers."""
        norm = clip_grad_norm_(self.model.parameters(), self.optim.max_grad_norm or float("inf"))
        self.log("train/grad_norm", norm)
        self.log("train/lr", optimizer.param_groups[0]["lr"])

    def log_loss(self, loss: Tensor) -> Tensor:
        """Log a micro-batch's loss and undo the averaging over ranks (by DDP) and micro-batches (by Lightning).

        Args:
            loss: a sum over a micro-batch, divided by a count over the *global* batch. Summed over ranks and
                micro-batches it is the exact mean, however unevenly the counted tokens are spread.
        """
        scaled = loss * (self.trainer.world_size * self.trainer.accumulate_grad_batches)
        self.log("train/loss", scaled.detach(), sync_dist=True)
        return scaled
