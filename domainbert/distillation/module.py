"""LightningModule base class of distillation on a corpus and on a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.optim import Optimizer

from domainbert.base.errors import DomainbertError
from domainbert.distillation.config import LossConfig, check_ensemble
from domainbert.distillation.weighted import WeightedLosses
from domainbert.encoders.base import Encoder
from domainbert.encoders.heads import EncoderWithHead
from domainbert.training.hparams import from_plain
from domainbert.training.lightning_internals import set_ddp_option
from domainbert.training.module import TrainedModule


class DistillationModule(TrainedModule):
    """Base class of `Distillation` and `TaskDistillation`: teachers, the sum of losses, gradual unfreezing.

    The teachers are not submodules, so no checkpoint and no optimizer contains them; they stay in eval mode without
    gradients.
    """

    loss_configs: Sequence[LossConfig]
    losses: WeightedLosses
    unfreeze_every: int
    """Optimizer steps after which the next lower layer is unfrozen; 0 trains all layers at once."""
    teachers: tuple[EncoderWithHead, ...] = ()

    def set_loss_configs(self, losses: Sequence[LossConfig], num_teachers: int) -> None:
        """Convert and check the settings of the losses."""
        self.loss_configs = [cast(LossConfig, from_plain(LossConfig, loss)) for loss in losses]
        check_ensemble(num_teachers, self.loss_configs)

    def set_losses(self, losses: WeightedLosses) -> None:
        """Set the losses between the student and its teachers; freeze the head if no loss reads logits."""
        self.losses = losses
        if not losses.reads:
            self.model.head.requires_grad_(False)

    def set_teachers(self, teachers: Sequence[EncoderWithHead]) -> None:
        """Set the teachers, several for an ensemble; switch them to eval mode and turn off their gradients."""
        # a tuple, so that they are not submodules
        self.teachers = tuple(teacher.eval().requires_grad_(False) for teacher in teachers)

    def check_teachers(self) -> None:
        """Raise `DomainbertError` if there are no teachers to run."""
        if not self.teachers:
            expected = f"{type(self).__name__}(teachers)"
            raise DomainbertError(where="teachers", found="none, as in a loaded checkpoint", expected=expected)

    def setup(self, stage: str) -> None:
        """Move the teachers to the device of the training; raise `DomainbertError` if the training is sharded."""
        super().setup(stage)
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            raise DomainbertError(
                where="trainer.strategy", found="fsdp", expected="ddp, because distillation reads hidden layers"
            )
        # some losses give no gradient to some weights
        set_ddp_option(self.trainer.strategy, "find_unused_parameters", True)
        for teacher in self.teachers:
            teacher.to(self.trainer.strategy.root_device)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Drop the gradients of frozen parameters before clipping."""
        for parameter in frozen_parameters(self.model.encoder, self.trainer.global_step, self.unfreeze_every):
            parameter.grad = None
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)


def frozen_parameters(encoder: Encoder, step: int, unfreeze_every: int) -> list[torch.nn.Parameter]:
    """Return the parameters of an encoder that are frozen in optimizer step `step`, counted from 0.

    At first only the head is trained. Every `unfreeze_every` steps one more layer is trained, from the top, and the
    embeddings last (Howard and Ruder 2018, arXiv:1801.06146, section 3.3). If `unfreeze_every` is 0, nothing is frozen.
    """
    if not unfreeze_every:
        return []
    top_frozen_layer = encoder.num_hidden_layers - step // unfreeze_every  # 0: the embeddings; below 0: nothing
    return encoder.parameters_up_to(top_frozen_layer)
