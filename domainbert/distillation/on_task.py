"""Distillation of fine-tuned models on text of their task, as a LightningModule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from domainbert.distillation.batches import output_logits
from domainbert.distillation.distilling import Distilling
from domainbert.distillation.losses import Outputs, Places
from domainbert.distillation.weighted import WeightedLosses, mean_outputs, observe
from domainbert.encoders.crf import label_logits
from domainbert.encoders.heads import EncoderWithHead
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.task import Task
from domainbert.training.optim_config import OptimConfig, ScheduleConfig


class TaskDistillation(Distilling, FineTuning):
    """Distils fine-tuned models on labelled and unlabelled text of their task.

    Args:
        model: the student with the task's head.
        teachers: see `Distilling.learn_from`; not asked for logits where the batches bring these.
        losses: see there.
        task: its loss and metric.
        optim: optimiser settings.
        schedule: learning-rate settings.
        num_steps: optimiser steps of the whole training.
        validation: the labelled items whose numbers the validation batches carry.
        seed: of the dropout.
        unfreeze_every: see `Distilling.learn_from`.
        row: see `FineTuning`; the teachers have the embeddings of all entries.
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
            if not task.exclusive:
                loss.divergence = task.divergence

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The weighted loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        reads = self.losses.reads
        own = batch if self.row is None else batch | {"input_ids": self.row[batch["input_ids"]]}
        student = observe(self.model, own, self.losses.layers(0), batch["positions"] if reads else None, False)
        student = self._outputs(student, batch)
        teacher = self._ask(batch) if self.losses.needs_teacher else None
        sums = self.losses.sums(student, teacher, Places.of(batch["position_ids"], batch["segment_ids"]))
        counted = batch | {"num_targets": batch[self.task.counted]}
        means = self.means(sums, counted)
        return self.note_loss(self.losses.total(means), means)

    def _outputs(self, student: Outputs, batch: dict[str, Any]) -> Outputs:
        """Logits of words or texts instead of positions, and the task's own loss."""
        if student.logits is None:
            return student
        hard = None
        if "hard" in self.losses.reads:
            hard = self.task.loss(student.logits, batch)
        logits = output_logits(student.logits, batch["output_index"], batch["num_outputs_here"])
        return Outputs(student.hidden, student.projections, logits, None, hard)

    def _ask(self, batch: dict[str, Any]) -> Outputs:
        given = batch.get("teacher_logits")
        if given is not None and not self.losses.needs_hidden:
            return Outputs([], {}, given)
        positions = batch["positions"] if "predicted" in self.losses.reads and given is None else None
        with torch.no_grad():
            outputs = [self._opinion(one, batch, positions) for one in self.teachers]
        teacher = mean_outputs(outputs)
        logits = given
        if teacher.logits is not None:
            logits = output_logits(teacher.logits, batch["output_index"], batch["num_outputs_here"])
        return Outputs(teacher.hidden, teacher.projections, logits)

    def _opinion(self, teacher: EncoderWithHead, batch: dict[str, Any], positions: Tensor | None) -> Outputs:
        """Outputs of one teacher for a batch; the logits of a CRF are its marginals."""
        found = observe(teacher, batch, self.losses.layers(1), positions, False)
        if found.logits is None:
            return found
        logits = label_logits(teacher.head, found.logits, batch["example"], batch["outputs"])
        return Outputs(found.hidden, found.projections, logits)
