"""Distillation on a corpus and on a task, as LightningModules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer
from torchmetrics import MetricCollection, SumMetric

from domainbert.base.errors import DomainbertError
from domainbert.data.types import IGNORED, SPARE
from domainbert.distillation.batches import batch_counts
from domainbert.distillation.losses import Outputs, Places, SoftTargetsLoss
from domainbert.distillation.weighted import COUNTS, WeightedLosses, mean_outputs, observe
from domainbert.encoders.base import Encoder
from domainbert.encoders.heads import EncoderWithHead
from domainbert.tasks.capabilities import need_teaching
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.task import Task
from domainbert.training.lightning_internals import set_ddp_option
from domainbert.training.module import TrainedModule
from domainbert.training.optim_config import OptimConfig, ScheduleConfig


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
        """
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


class CorpusDistillation(Distilling):
    """Distils masked language models on packed rows of a corpus.

    Args are those of `TrainedModule` and of `Distilling.learn_from`.
    """

    def __init__(
        self,
        model: EncoderWithHead,
        teachers: Sequence[EncoderWithHead],
        losses: WeightedLosses,
        optim: OptimConfig,
        schedule: ScheduleConfig,
        num_steps: int,
        seed: int = 0,
        unfreeze_every: int = 0,
    ) -> None:
        super().__init__(model, optim, schedule, num_steps, seed)
        self.learn_from(teachers, losses, unfreeze_every)
        counts = [count for unit, count in COUNTS.items() if unit != "examples"]  # rows of a corpus are none
        names = [*(f"loss {name}" for name in losses.names), *counts]
        self.sums = MetricCollection({name: SumMetric(nan_strategy="disable") for name in names})

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The weighted loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        means = self.losses.means(self._sums(batch), batch | {"num_outputs": batch["num_targets"]})
        return self.note_loss(self.losses.total(means), means)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the sums."""
        used = batch["targets"] != IGNORED
        batch |= {name: batch[name][used] for name in ("positions", "targets")}
        targets = used.sum()
        sums = {f"loss {name}": value for name, value in self._sums(batch).items()}
        sums |= batch_counts(batch["position_ids"], batch["segment_ids"])
        if SPARE in batch:
            return
        for name, value in (sums | {"num_targets": targets, "num_outputs": targets}).items():
            self.sums[name].update(value)

    def on_validation_epoch_end(self) -> None:
        """Log each loss and their weighted sum."""
        sums = self.sums.compute()
        self.sums.reset()
        means = self.losses.means({name: sums[f"loss {name}"] for name in self.losses.names}, sums)
        self.log_dict({f"validation/{name}": value for name, value in means.items()})
        self.log("validation/loss", self.losses.total(means))

    def _sums(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        positions, reads = batch["positions"], self.losses.reads
        wanted = positions if reads & {"predicted", "hard"} else None
        places = Places.of(batch)
        every = places.real_places if "all" in reads else None
        student = observe(self.model, batch, self.losses.layers(0), wanted, every)
        if "hard" in reads:
            assert student.logits is not None
            hard = functional.cross_entropy(student.logits.float(), batch["targets"], reduction="sum")
            student = replace(student, hard_loss=hard)
        teacher = None
        if self.losses.needs_teacher:
            asked = self.losses.layers(1), positions if "predicted" in reads else None, every
            with torch.no_grad():
                teacher = mean_outputs([observe(one, batch, *asked) for one in self.teachers])
        return self.losses.sums(student, teacher, places)


class TaskDistillation(Distilling, FineTuning):
    """Distils fine-tuned models on labelled and unlabelled text of their task.

    Args are those of `FineTuning` and of `Distilling.learn_from`; teachers are not asked for logits where the batches
    bring these, and have the embeddings of all entries.
    """

    def __init__(
        self,
        model: EncoderWithHead,
        teachers: Sequence[EncoderWithHead],
        losses: WeightedLosses,
        task: Task[Any, Any],
        optim: OptimConfig,
        schedule: ScheduleConfig,
        num_steps: int,
        validation: Sequence[Any],
        seed: int = 0,
        unfreeze_every: int = 0,
        row: Tensor | None = None,
    ) -> None:
        FineTuning.__init__(self, model, task, optim, schedule, num_steps, validation, seed, row)
        self.learn_from(teachers, losses, unfreeze_every)
        for loss in losses.terms:
            if isinstance(loss, SoftTargetsLoss):
                loss.divergence, loss.unit = need_teaching(task).divergence, need_teaching(task).softmax_over

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The weighted loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        reads = self.losses.reads
        own = batch if self.row is None else batch | {"input_ids": self.row[batch["input_ids"]]}
        student = observe(self.model, own, self.losses.layers(0), batch["positions"] if reads else None)
        student = self._outputs(student, batch)
        teacher = self._ask(batch) if self.losses.needs_teacher else None
        sums = self.losses.sums(student, teacher, Places.of(batch))
        means = self.losses.means(sums, batch | {"num_targets": batch[self.task.counted]})
        return self.note_loss(self.losses.total(means), means)

    def _outputs(self, student: Outputs, batch: dict[str, Any]) -> Outputs:
        """Replace logits at positions by logits of words or texts, and add the task's own loss."""
        if student.logits is None:
            return student
        hard = self.task.loss(student.logits, batch) if "hard" in self.losses.reads else None
        if "predicted" not in self.losses.reads:
            return replace(student, logits=None, hard_loss=hard)
        logits = need_teaching(self.task).teacher_logits(self.task, self.model.head, student.logits, batch)
        return replace(student, logits=logits, hard_loss=hard, example=batch["output_example"])

    def _ask(self, batch: dict[str, Any]) -> Outputs:
        given = batch.get("teacher_logits")
        if given is not None and not self.losses.needs_hidden:
            return Outputs([], {}, given)
        positions = batch["positions"] if "predicted" in self.losses.reads and given is None else None
        with torch.no_grad():
            teacher = mean_outputs([self._teacher_outputs(one, batch, positions) for one in self.teachers])
        return replace(teacher, logits=given) if teacher.logits is None else teacher

    def _teacher_outputs(self, teacher: EncoderWithHead, batch: dict[str, Any], positions: Tensor | None) -> Outputs:
        """Run one teacher on a batch; its logits are those of words or texts, a CRF's its log-marginals."""
        outputs = observe(teacher, batch, self.losses.layers(1), positions)
        if outputs.logits is None:
            return outputs
        logits = need_teaching(self.task).teacher_logits(self.task, teacher.head, outputs.logits, batch)
        return replace(outputs, logits=logits)


def frozen_parameters(encoder: Encoder, step: int, unfreeze_every: int) -> list[torch.nn.Parameter]:
    """Parameters that stay frozen in an optimiser step (from 0): layers learn from the top, the embeddings last
    (Howard and Ruder 2018, arXiv:1801.06146, section 3.3), one more after `unfreeze_every` steps; at first the head
    alone does. 0 freezes nothing."""
    if not unfreeze_every:
        return []
    return encoder.up_to(encoder.num_hidden_layers - step // unfreeze_every)
