"""Distillation of fine-tuned models on text of their task, as a LightningModule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
            if not task.exclusive:
                loss.divergence = task.divergence

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The weighted loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        reads = self.losses.reads
        own = batch if self.row is None else batch | {"input_ids": self.row[batch["input_ids"]]}
        student = observe(self.model, own, self.losses.layers(0), batch["positions"] if reads else None, False)
        student = self._outputs(student, batch)
        teacher = self._ask(batch) if self.losses.needs_teacher else None
        sums = self.losses.sums(student, teacher, Places(batch["position_ids"], batch["segment_ids"]))
        means = self.means(sums, batch | {"num_targets": batch[self.task.counted]})
        return self.note_loss(self.losses.total(means), means)

    def _outputs(self, student: Outputs, batch: dict[str, Any]) -> Outputs:
        """Logits of words or texts instead of positions, and the task's own loss."""
        if student.logits is None:
            return student
        hard = self.task.loss(student.logits, batch) if "hard" in self.losses.reads else None
        logits = output_logits(student.logits, batch["output_index"], batch["num_outputs_here"])
        return replace(student, logits=logits, hard_loss=hard)

    def _ask(self, batch: dict[str, Any]) -> Outputs:
        given = batch.get("teacher_logits")
        if given is not None and not self.losses.needs_hidden:
            return Outputs([], {}, given)
        positions = batch["positions"] if "predicted" in self.losses.reads and given is None else None
        with torch.no_grad():
            teacher = mean_outputs([self._opinion(one, batch, positions) for one in self.teachers])
        if teacher.logits is None:
            return replace(teacher, logits=given)
        return replace(teacher, logits=output_logits(teacher.logits, batch["output_index"], batch["num_outputs_here"]))

    def _opinion(self, teacher: EncoderWithHead, batch: dict[str, Any], positions: Tensor | None) -> Outputs:
        """Outputs of one teacher for a batch; the logits of a CRF are its marginals."""
        found = observe(teacher, batch, self.losses.layers(1), positions, False)
        if found.logits is None:
            return found
        return replace(found, logits=label_logits(teacher.head, found.logits, batch["example"], batch["outputs"]))
