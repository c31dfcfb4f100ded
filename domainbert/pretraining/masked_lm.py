"""Masked-LM pretraining as a LightningModule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torchmetrics import SumMetric

from domainbert.data.types import IGNORED
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.training.module import TrainedModule
from domainbert.training.optim_config import OptimConfig, ScheduleConfig


def masked_lm_loss(model: EncoderWithHead, tokens: Packed, positions: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy at the masked positions, summed over the batch (Devlin et al. 2019, section 3.1). A scalar."""
    logits = model(tokens, positions)
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")


class MaskedLM(TrainedModule):
    """Trains an encoder to predict hidden tokens.

    Args:
        model: the encoder with a masked-LM head.
        optim: optimiser settings.
        schedule: learning-rate settings.
        num_steps: optimiser steps of the whole training.
        tokens_per_character: of the validation text, for bits per character.
        unigram_entropy: nats per token of the validation text under the training text's token frequencies.
        seed: of the dropout.
        held_out: tokens per character of further texts that are validated, by name; a loader each, in this order.
        embedding_steps: in so many steps at the start only the embeddings and the head learn.
        compile: run the forward and backward pass through `torch.compile`.
    """

    def __init__(
        self,
        model: EncoderWithHead,
        optim: OptimConfig,
        schedule: ScheduleConfig,
        num_steps: int,
        tokens_per_character: float,
        unigram_entropy: float,
        seed: int = 0,
        held_out: Mapping[str, float] | None = None,
        embedding_steps: int = 0,
        compile: bool = False,
    ) -> None:
        super().__init__(model, optim, schedule, num_steps, seed)
        self.unigram_entropy, self.embedding_steps = unigram_entropy, embedding_steps
        self.texts = {"": tokens_per_character, **(held_out or {})}
        self.summed_loss = torch.compile(masked_lm_loss, dynamic=False) if compile else masked_lm_loss
        self.loss_sums = nn.ModuleList(SumMetric(nan_strategy="disable") for _ in self.texts)
        self.target_counts = nn.ModuleList(SumMetric(nan_strategy="disable") for _ in self.texts)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        return self.note_loss(self._summed(batch) / batch["num_targets"])

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Before clipping, drop the gradients of the layers as long as only embeddings and head learn."""
        if self.trainer.global_step < self.embedding_steps:
            for block in self.model.encoder.blocks():
                block.zero_grad(set_to_none=True)
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def validation_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a batch to the loss of its text."""
        total, count = self._sums(dataloader_idx)
        total.update(self._summed(batch))
        count.update((batch["targets"] != IGNORED).sum())

    def on_validation_epoch_end(self) -> None:
        """Log loss, perplexity, bits per character and the unigram line; of a held-out text loss and bits."""
        metrics: dict[str, float] = {}
        for index, (name, tokens_per_character) in enumerate(self.texts.items()):
            total, count = self._sums(index)
            loss = float(total.compute() / count.compute())
            total.reset()
            count.reset()
            prefix = f"{name}_" if name else ""
            metrics[f"{prefix}loss"] = loss
            metrics[f"{prefix}bits_per_character"] = loss / math.log(2) * tokens_per_character
        metrics |= {"perplexity": math.exp(min(metrics["loss"], 100.0)), "unigram_entropy": self.unigram_entropy}
        self.log_dict({f"validation/{name}": value for name, value in metrics.items()})

    def _sums(self, index: int) -> tuple[SumMetric, SumMetric]:
        return cast(SumMetric, self.loss_sums[index]), cast(SumMetric, self.target_counts[index])

    def _summed(self, batch: dict[str, Any]) -> Tensor:
        return self.summed_loss(self.model, Packed.of(batch), batch["positions"], batch["targets"])
