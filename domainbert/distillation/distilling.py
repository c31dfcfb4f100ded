"""Base of distillation on a corpus and on a task, a LightningModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.optim import Optimizer

from domainbert.base.errors import DomainbertError
from domainbert.distillation.losses import Unit
from domainbert.distillation.weighted import WeightedLosses
from domainbert.encoders.base import Encoder
from domainbert.encoders.heads import EncoderWithHead
from domainbert.training.lightning_internals import set_ddp_option
from domainbert.training.module import TrainedModule

COUNTS: dict[Unit, str] = {
    "targets": "num_targets",
    "outputs": "num_outputs",
    "tokens": "num_real_tokens",
    "segments": "num_segments",
    "pairs": "num_pairs",
}


class Distilling(TrainedModule):
    """Base of both kinds: teachers, the sum of losses, gradual unfreezing.

    The teachers are no part of the module, so they are in no checkpoint and no optimiser; they stay in eval mode and
    without gradients.
    """

    losses: WeightedLosses
    unfreeze_every: int

    def learn_from(self, teachers: Sequence[EncoderWithHead], losses: WeightedLosses, unfreeze_every: int) -> None:
        """Say what is learnt from whom.

        Args:
            teachers: one, or an ensemble whose logits are averaged; none where no loss needs them.
            losses: between the student and the first teacher.
            unfreeze_every: optimiser steps after which one layer more learns, from the top; 0 lets all learn at once.

        Raises:
            DomainbertError: several teachers with a loss that looks into one.
        """
        if len(teachers) > 1 and losses.needs_hidden:
            raise DomainbertError(
                f"teachers: {len(teachers)}, with losses between layers; expected one, or losses on predictions only"
            )
        self.teachers = tuple(teacher.eval().requires_grad_(False) for teacher in teachers)  # a tuple is no submodule
        self.losses, self.unfreeze_every = losses, unfreeze_every
        if not losses.reads:
            self.model.head.requires_grad_(False)

    def setup(self, stage: str) -> None:
        """Bring the teachers to the device of the training."""
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            raise DomainbertError("trainer.strategy: fsdp; distillation looks into the model, so it needs ddp")
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

    def means(self, sums: Mapping[str, Tensor], batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Each loss of a micro-batch, over its count in the global batch."""
        return self.losses.means(sums, {unit: batch[name] for unit, name in COUNTS.items()})


def frozen_parameters(encoder: Encoder, step: int, unfreeze_every: int) -> list[torch.nn.Parameter]:
    """Parameters that stay frozen in an optimiser step (from 0): layers learn from the top, the embeddings last
    (Howard and Ruder 2018, arXiv:1801.06146, section 3.3), one more after `unfreeze_every` steps; at first the head
    alone does. 0 freezes nothing."""
    if not unfreeze_every:
        return []
    frozen = encoder.num_hidden_layers - step // unfreeze_every  # up to that depth
    return [parameter for name, parameter in encoder.named_parameters() if encoder.depth_of(name) <= frozen]
