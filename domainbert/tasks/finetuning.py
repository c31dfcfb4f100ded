"""Fine-tuning on any labelled task as a LightningModule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torchmetrics import SumMetric

from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.tasks.slices import SlicedMetric
from domainbert.tasks.task import Task
from domainbert.training.module import TrainedModule
from domainbert.training.optim_config import OptimConfig, ScheduleConfig


class FineTuning(TrainedModule):
    """Trains an encoder with a head on a task; see `TrainedModule`.

    Attributes:
        validation: the labelled items whose numbers the validation batches carry.
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
    ) -> None:
        super().__init__(model, optim, schedule, num_steps, seed)
        self.task, self.validation = task, validation
        self.metric, self.slices = task.metric(), SlicedMetric(task, validation)
        self.unusable: list[int] = []
        self.not_finite = SumMetric(nan_strategy="disable")  # batches of this validation with such logits
        self.row: Tensor | None
        self.register_buffer("row", row, persistent=False)
        task.bind(model.head)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        return self.note_loss(self.task.loss(self._logits(batch), batch) / batch[self.task.counted])

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the validation metric."""
        logits = self._logits(batch)
        self.not_finite.update((~logits.isfinite()).any())
        self.task.update(self.metric, logits, batch, self.validation)
        self.slices.update(logits, batch)

    def on_validation_epoch_end(self) -> None:
        """Log the validation metrics."""
        whole = self.metric.compute()
        scores = {**whole, **self.slices.compute(whole)}
        self.metric.reset()
        if self.not_finite.compute():
            self.unusable.append(self.global_step)
        self.not_finite.reset()
        self.log_dict({f"validation/{name}": float(value) for name, value in scores.items()})

    def _logits(self, batch: dict[str, Any]) -> Tensor:
        tokens = Packed.of(batch)
        if self.row is not None:
            tokens = tokens._replace(input_ids=self.row[tokens.input_ids])
        return self.model(tokens, batch["positions"])
