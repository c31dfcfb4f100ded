"""Distillation as LightningModules: on a corpus, and on a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer
from torchmetrics import MetricCollection, SumMetric

from domainbert.data.distillation import batch_counts, output_logits
from domainbert.data.masking import IGNORED
from domainbert.encoders.base import Encoder
from domainbert.encoders.crf import label_logits
from domainbert.encoders.heads import EncoderWithHead
from domainbert.errors import DomainbertError
from domainbert.objectives.config import OptimConfig, ScheduleConfig
from domainbert.objectives.distillation.losses import Outputs, Places, Unit
from domainbert.objectives.distillation.weighted import WeightedLosses, mean_outputs, observe
from domainbert.objectives.finetuning import FineTuning
from domainbert.objectives.steps import TrainedModule
from domainbert.objectives.task import Task

_COUNTS: dict[Unit, str] = {
    "targets": "num_targets",
    "outputs": "num_outputs",
    "tokens": "num_real_tokens",
    "segments": "num_segments",
    "pairs": "num_pairs",
}


class Distilling(TrainedModule):
    """What both kinds share: teachers, the sum of losses, gradual unfreezing.

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
        self._parts: list[dict[str, Tensor]] = []
        if not losses.reads:
            self.model.head.requires_grad_(False)

    def setup(self, stage: str) -> None:
        """Bring the teachers to the device of the training."""
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            raise DomainbertError("trainer.strategy: fsdp; distillation looks into the model, so it needs ddp")
        for teacher in self.teachers:
            teacher.to(self.trainer.strategy.root_device)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Before clipping, drop the gradients of what does not learn yet; log each loss."""
        for parameter in frozen_parameters(self.model.encoder, self.trainer.global_step, self.unfreeze_every):
            parameter.grad = None
        for name in self.losses.names:
            value = torch.stack([part[name] for part in self._parts]).sum()
            self.log(f"train/{name}", self.trainer.strategy.reduce(value, reduce_op="sum"))
        self._parts.clear()
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _weighted(self, sums: Mapping[str, Tensor], batch: Mapping[str, Any]) -> Tensor:
        """The loss of a micro-batch as `note_loss` takes it."""
        means = self.losses.means(sums, {unit: batch[name] for unit, name in _COUNTS.items()})
        self._parts.append({name: value.detach() for name, value in means.items()})
        return self.losses.total(means)


class CorpusDistillation(Distilling):
    """Distils masked language models on packed rows of a corpus.

    Args:
        model: the student with a masked-LM head.
        teachers: see `Distilling.learn_from`.
        losses: see there.
        optim: optimiser settings.
        schedule: learning-rate settings.
        num_steps: optimiser steps of the whole training.
        seed: of the dropout.
        unfreeze_every: see `Distilling.learn_from`.
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
        names = [*(f"loss {name}" for name in losses.names), *_COUNTS]
        self.sums = MetricCollection({name: SumMetric() for name in names})

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The weighted loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        counted = batch | {"num_outputs": batch["num_targets"]}
        return self.note_loss(self._weighted(self._sums(batch), counted))

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the sums."""
        targets = (batch["targets"] != IGNORED).sum()
        counts = batch_counts(batch["position_ids"], batch["segment_ids"])
        counts |= {"num_targets": targets, "num_outputs": targets}
        for name, value in self._sums(batch).items():
            self.sums[f"loss {name}"].update(value)
        for unit, name in _COUNTS.items():
            self.sums[unit].update(counts[name])

    def on_validation_epoch_end(self) -> None:
        """Log each loss and their weighted sum."""
        sums = self.sums.compute()
        self.sums.reset()
        counts = {unit: sums[unit] for unit in _COUNTS}
        means = self.losses.means({name: sums[f"loss {name}"] for name in self.losses.names}, counts)
        self.log_dict({f"validation/{name}": value for name, value in means.items()})
        self.log("validation/loss", self.losses.total(means))

    def _sums(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        used = (batch["targets"] != IGNORED).nonzero().flatten()
        positions, reads = batch["positions"][used], self.losses.reads
        wanted = positions if reads & {"predicted", "hard"} else None
        student = observe(self.model, batch, self.losses.layers(0), wanted, "all" in reads)
        if "hard" in reads:
            assert student.logits is not None
            hard = functional.cross_entropy(student.logits.float(), batch["targets"][used], reduction="sum")
            student = Outputs(student.hidden, student.projections, student.logits, student.all_logits, hard)
        teacher = self._ask(batch, positions if "predicted" in reads else None, "all" in reads)
        return self.losses.sums(student, teacher, Places.of(batch["position_ids"], batch["segment_ids"]))

    def _ask(self, batch: Mapping[str, Tensor], positions: Tensor | None, every: bool) -> Outputs | None:
        if not self.losses.needs_teacher:
            return None
        layers = self.losses.layers(1)
        with torch.no_grad():
            return mean_outputs([observe(teacher, batch, layers, positions, every) for teacher in self.teachers])


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
    """

    def __init__(
        self,
        model: EncoderWithHead,
        teachers: Sequence[EncoderWithHead],
        losses: WeightedLosses,
        task: Task,
        optim: OptimConfig,
        schedule: ScheduleConfig,
        num_steps: int,
        validation: Sequence[Any],
        seed: int = 0,
        unfreeze_every: int = 0,
    ) -> None:
        FineTuning.__init__(self, model, task, optim, schedule, num_steps, validation, seed)
        self.learn_from(teachers, losses, unfreeze_every)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The weighted loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        reads = self.losses.reads
        student = observe(self.model, batch, self.losses.layers(0), batch["positions"] if reads else None, False)
        student = self._outputs(student, batch)
        teacher = self._ask(batch) if self.losses.needs_teacher else None
        sums = self.losses.sums(student, teacher, Places.of(batch["position_ids"], batch["segment_ids"]))
        counted = batch | {"num_targets": batch["num_examples" if self.task.head == "sequence" else "num_targets"]}
        return self.note_loss(self._weighted(sums, counted))

    def _outputs(self, student: Outputs, batch: dict[str, Any]) -> Outputs:
        """Logits of words or texts instead of positions, and the task's own loss."""
        if student.logits is None:
            return student
        hard = None
        if "hard" in self.losses.reads:
            hard = self.task.loss(student.logits, batch | {"num_targets": 1, "num_examples": 1})
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
        """What one teacher made of a batch; a random field's logits are its marginals."""
        found = observe(teacher, batch, self.losses.layers(1), positions, False)
        if found.logits is None:
            return found
        logits = label_logits(teacher.head, found.logits, batch["example"], batch["outputs"])
        return Outputs(found.hidden, found.projections, logits)


def frozen_parameters(encoder: Encoder, step: int, unfreeze_every: int) -> list[torch.nn.Parameter]:
    """What does not learn in an optimiser step (from 0), as the encoder thaws from the top, the embeddings last
    (Howard and Ruder 2018, arXiv:1801.06146, section 3.3).

    Args:
        encoder: the student's.
        step: the optimiser step.
        unfreeze_every: steps after which one layer more learns; at first the head alone does. 0 freezes nothing.
    """
    if not unfreeze_every:
        return []
    thawed = step // unfreeze_every
    count = max(len(encoder.layers) - thawed, 0)
    frozen = [parameter for layer in list(encoder.layers)[:count] for parameter in layer.parameters()]
    if thawed <= len(encoder.layers):
        frozen += [parameter for name, parameter in encoder.named_parameters() if not name.startswith("layers.")]
    return frozen
