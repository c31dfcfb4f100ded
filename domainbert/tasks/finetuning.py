"""Fine-tuning on any labelled task as a LightningModule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import SumMetric

from domainbert.base.errors import DomainbertError
from domainbert.data.types import SPARE
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.labelled.tagged_files import OF_A_CRF
from domainbert.metrics.headline import LOSS
from domainbert.tasks.extra_losses import moved, steepest_move, symmetric_divergence
from domainbert.tasks.extra_losses_config import AdversarialConfig, RDropConfig
from domainbert.tasks.slices import SlicedMetric
from domainbert.tasks.task import Task
from domainbert.training.module import TrainedModule
from domainbert.training.optim_config import OptimConfig, ScheduleConfig


class FineTuning(TrainedModule):
    """Trains an encoder with a head on a task; see `TrainedModule`.

    Attributes:
        validation: the labelled items whose numbers the validation batches carry.
        measures_loss: whether validation gives the task's loss, too; off unless set.
        row: (vocab_size,) where the model has an entry's embedding, see `UsedEntries`; None if at its id.
        unusable: the steps whose validation gave logits that are not finite: its scores mean nothing.
    """

    def __init__(
        self,
        model: EncoderWithHead,
        task: Task[Any, Any],
        optim: OptimConfig,
        schedule: ScheduleConfig,
        num_steps: int,
        validation: Sequence[Any],
        seed: int = 0,
        row: Tensor | None = None,
        adversarial: AdversarialConfig | None = None,
        r_drop: RDropConfig | None = None,
    ) -> None:
        super().__init__(model, optim, schedule, num_steps, seed)
        self.task, self.validation = task, validation
        self.adversarial, self.r_drop = adversarial, r_drop
        if r_drop is not None:
            check_r_drop(task)
        self.metric, self.slices = task.metric(), SlicedMetric(task, validation)
        self.unusable: list[int] = []
        self.not_finite = SumMetric(nan_strategy="disable")  # batches of this validation with such logits
        self.measures_loss = False
        # not a MeanMetric, which forgets its weights where it does not look for NaN
        self.loss_sum, self.loss_count = (SumMetric(nan_strategy="disable") for _ in range(2))
        self.row: Tensor | None
        self.register_buffer("row", row, persistent=False)
        if row is not None:
            self.num_parked = int((row < 0).sum()) * model.encoder.input_embeddings.embedding_dim
        task.attach_head(model.head)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        means = {name: value / batch[self.task.counted] for name, value in self._sums(batch).items()}
        return self.note_loss(torch.stack([*means.values()]).sum(), means if len(means) > 1 else {})

    def _sums(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """The terms of the loss by name, summed over a micro-batch: the task's, and what is asked for beside it."""
        if self.adversarial is None:
            logits = self._logits(batch)
            sums = {"task": self.task.loss(logits, batch)}
        else:
            logits, sums = self._with_adversary(batch, self.adversarial.epsilon)
        if self.r_drop is not None:
            other = self._logits(batch)  # with other dropout, whose random numbers know the calls of a step apart
            sums["task"] = sums["task"] + self.task.loss(other, batch)
            assert self.task.comparing is not None  # checked by `check_r_drop`
            pair = (self.task.comparing.outputs(one, batch) for one in (logits, other))
            sums["r_drop"] = self.r_drop.alpha * symmetric_divergence(self.task.comparing, *pair)
        return sums

    def _with_adversary(self, batch: dict[str, Any], epsilon: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits, and the loss as it is and with the word embeddings moved; the move itself is a constant."""
        embeddings = self.model.encoder.input_embeddings
        size = (*batch["input_ids"].shape, embeddings.embedding_dim)
        nowhere = torch.zeros(size, device=batch["input_ids"].device, requires_grad=True)
        with moved(embeddings, nowhere):
            logits = self._logits(batch)
        loss = self.task.loss(logits, batch)
        (gradient,) = torch.autograd.grad(loss, nowhere, retain_graph=True)
        with moved(embeddings, steepest_move(gradient, batch["segment_ids"], epsilon)):
            return logits, {"task": loss, "adversarial": self.task.loss(self._logits(batch), batch)}

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the validation metric."""
        logits = self._logits(batch)
        if SPARE in batch:
            return
        self.not_finite.update((~logits.isfinite()).any())
        self.task.update(self.metric, logits, batch, self.validation)
        self.slices.update(logits, batch)
        if self.measures_loss:
            self.loss_sum.update(self.task.loss(logits, batch))
            self.loss_count.update(len(batch["items" if self.task.counted == "num_examples" else "targets"]))

    def on_validation_epoch_end(self) -> None:
        """Log the validation metrics."""
        whole = self.metric.compute()
        scores = {**whole, **self.slices.compute(whole)}
        self.metric.reset()
        if self.measures_loss:
            scores = {**scores, LOSS.key: self.loss_sum.compute() / self.loss_count.compute()}
            self.loss_sum.reset()
            self.loss_count.reset()
        if self.not_finite.compute():
            self.unusable.append(self.global_step)
        self.not_finite.reset()
        self.log_dict({f"validation/{name}": float(value) for name, value in scores.items()})

    def _logits(self, batch: dict[str, Any]) -> Tensor:
        tokens = Packed.of(batch)
        if self.row is not None:
            tokens = tokens._replace(input_ids=self.row[tokens.input_ids])
        return self.model(tokens, batch["positions"])


def check_r_drop(task: Task[Any, Any]) -> None:
    """`DomainbertError` where two predictions of a task cannot be compared output by output."""
    if task.comparing is None:
        reason = f"predictions of {task.name} cannot be compared output by output; expected no r_drop"
        raise DomainbertError(f"r_drop: {OF_A_CRF if task.head == 'crf' else reason}")
