"""Base of distillation on a corpus and on a task: teachers, the sum of losses, gradual unfreezing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.optim import Optimizer

from domainbert.base.errors import DomainbertError
from domainbert.distillation.weighted import WeightedLosses
from domainbert.encoders.base import Encoder
from domainbert.encoders.heads import EncoderWithHead
from domainbert.training.lightning_internals import set_ddp_option
from domainbert.training.module import TrainedModule


class Distilling(TrainedModule):
    """Base of both kinds: teachers, the sum of losses, gradual unfreezing.

    The teachers are no part of the module, so they are in no checkpoint and no optimiser; they stay in eval mode and
    without gradients.
    """

    losses: WeightedLosses
    unfreeze_every: int
    teachers: tuple[EncoderWithHead, ...] = ()

    def learn_from(self, teachers: Sequence[EncoderWithHead], losses: WeightedLosses, unfreeze_every: int) -> None:
        """Say what is learnt from whom.

        Args:
            teachers: one, or an ensemble whose logits are averaged; none where no loss needs them.
            losses: between the student and the first teacher.
            unfreeze_every: optimiser steps after which one layer more learns, from the top; 0 lets all learn at once.
        """
        self.take_teachers(teachers)
        self.losses, self.unfreeze_every = losses, unfreeze_every
        if not losses.reads:
            self.model.head.requires_grad_(False)

    def take_teachers(self, teachers: Sequence[EncoderWithHead]) -> None:
        """Ask these models from now on, in eval mode and without gradients."""
        self.teachers = tuple(teacher.eval().requires_grad_(False) for teacher in teachers)  # a tuple is no submodule

    def setup(self, stage: str) -> None:
        """Bring the teachers to the device of the training."""
        super().setup(stage)
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            raise DomainbertError(
                "trainer.strategy: found fsdp; expected ddp, because distillation reads hidden layers"
            )
        set_ddp_option(self.trainer.strategy, "find_unused_parameters", True)  # not every loss reaches every weight
        for teacher in self.teachers:
            teacher.to(self.trainer.strategy.root_device)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Before clipping, drop the gradients of what does not learn yet."""
        for parameter in frozen_parameters(self.model.encoder, self.trainer.global_step, self.unfreeze_every):
            parameter.grad = None
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)


def frozen_parameters(encoder: Encoder, step: int, unfreeze_every: int) -> list[torch.nn.Parameter]:
    """Parameters that stay frozen in an optimiser step (from 0): layers learn from the top, the embeddings last
    (Howard and Ruder 2018, arXiv:1801.06146, section 3.3), one more after `unfreeze_every` steps; at first the head
    alone does. 0 freezes nothing."""
    if not unfreeze_every:
        return []
    return encoder.up_to(encoder.num_hidden_layers - step // unfreeze_every)
