"""Distillation of masked language models on a corpus, as a LightningModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import MetricCollection, SumMetric

from domainbert.data.types import IGNORED
from domainbert.distillation.batches import batch_counts
from domainbert.distillation.distilling import COUNTS, Distilling
from domainbert.distillation.losses import Places
from domainbert.distillation.weighted import WeightedLosses, mean_outputs, observe
from domainbert.encoders.heads import EncoderWithHead
from domainbert.training.optim_config import OptimConfig, ScheduleConfig


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
        names = [*(f"loss {name}" for name in losses.names), *COUNTS]
        self.sums = MetricCollection({name: SumMetric(nan_strategy="disable") for name in names})

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The weighted loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        counted = batch | {"num_outputs": batch["num_targets"]}
        means = self.means(self._sums(batch), counted)
        return self.note_loss(self.losses.total(means), means)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the sums."""
        targets = (batch["targets"] != IGNORED).sum()
        counts = batch_counts(batch["position_ids"], batch["segment_ids"])
        counts |= {"num_targets": targets, "num_outputs": targets}
        for name, value in self._sums(batch).items():
            self.sums[f"loss {name}"].update(value)
        for unit, name in COUNTS.items():
            self.sums[unit].update(counts[name])

    def on_validation_epoch_end(self) -> None:
        """Log each loss and their weighted sum."""
        sums = self.sums.compute()
        self.sums.reset()
        counts = {unit: sums[unit] for unit in COUNTS}
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
            student = replace(student, hard_loss=hard)
        teacher = None
        if self.losses.needs_teacher:
            asked = self.losses.layers(1), positions if "predicted" in reads else None, "all" in reads
            with torch.no_grad():
                teacher = mean_outputs([observe(one, batch, *asked) for one in self.teachers])
        return self.losses.sums(student, teacher, Places(batch["position_ids"], batch["segment_ids"]))
