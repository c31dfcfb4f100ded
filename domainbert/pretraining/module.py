"""Pretraining with any objective, as a LightningModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import Metric, SumMetric

from domainbert.encoders.heads import EncoderWithHead
from domainbert.pretraining.objective import MODEL, Objective, ValidationText
from domainbert.training.module import TrainedModule
from domainbert.training.optim_config import OptimConfig, ScheduleConfig


class Pretraining(TrainedModule):
    """Trains models on packed rows with the losses of an objective.

    Args:
        objective: losses and metrics.
        models: from `Objective.build`.
        optim: optimiser settings.
        schedule: learning-rate settings.
        num_steps: optimiser steps of the whole training.
        texts: what is validated: the corpus' own validation split, then the held-out texts; a loader each.
        seed: of the dropout.
        embedding_steps: steps at the start in which only the embeddings and the heads learn.
        compile: run the forward and backward pass through `torch.compile`.
    """

    def __init__(
        self,
        objective: Objective[Any],
        models: Mapping[str, EncoderWithHead],
        optim: OptimConfig,
        schedule: ScheduleConfig,
        num_steps: int,
        texts: Sequence[ValidationText],
        seed: int = 0,
        embedding_steps: int = 0,
        compile: bool = False,
    ) -> None:
        others = {name: model for name, model in models.items() if name != MODEL}
        super().__init__(models[MODEL], optim, schedule, num_steps, seed, others)
        self.objective, self.texts, self.embedding_steps = objective, list(texts), embedding_steps
        self.summed_losses = torch.compile(objective.losses, dynamic=False) if compile else objective.losses
        sums = [{name: SumMetric(nan_strategy="disable") for name in objective.measured} for _ in texts]
        self.sums = nn.ModuleList(nn.ModuleDict(of_text) for of_text in sums)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a micro-batch, scaled so that the gradient is that of the means over the global batch."""
        sums = self.summed_losses(self.models, self._inputs(batch))
        means = {name: sums[name] / batch[term.count] for name, term in self.objective.terms.items()}
        total = sum(term.weight * means[name] for name, term in self.objective.terms.items())
        return self.note_loss(cast(Tensor, total), means if len(means) > 1 else {})

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Before clipping, drop the gradients of the layers as long as only embeddings and heads learn."""
        if self.trainer.global_step < self.embedding_steps:
            for model in self.models.values():
                for block in model.encoder.blocks():
                    block.zero_grad(set_to_none=True)
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def validation_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a batch to the sums of its text."""
        measured = self.objective.measure(self.models, self._inputs(batch))
        for name, metric in self._metrics(dataloader_idx).items():
            metric.update(measured[name])

    def on_validation_epoch_end(self) -> None:
        """Log what the objective reports of each text, that of a held-out one with its name before it."""
        metrics: dict[str, float] = {}
        for index, text in enumerate(self.texts):
            sums = {name: metric.compute() for name, metric in self._metrics(index).items()}
            prefix = f"{text.name}_" if text.name else ""
            metrics |= {f"{prefix}{name}": value for name, value in self.objective.report(sums, text).items()}
            for metric in self._metrics(index).values():
                metric.reset()
        self.log_dict({f"validation/{name}": value for name, value in metrics.items()})

    def _metrics(self, index: int) -> dict[str, Metric]:
        return dict(cast(Any, self.sums[index]).items())

    def _inputs(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        return {name: batch[name] for name in self.objective.inputs if name in batch}
