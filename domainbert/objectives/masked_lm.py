"""Masked-LM pretraining as a LightningModule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import SumMetric

from domainbert.data.masking import IGNORED
from domainbert.encoders.heads import EncoderWithHead
from domainbert.objectives.config import OptimConfig, ScheduleConfig
from domainbert.objectives.steps import TrainedModule


def masked_lm_loss(
    model: EncoderWithHead,
    input_ids: Tensor,
    position_ids: Tensor,
    segment_ids: Tensor,
    positions: Tensor,
    targets: Tensor,
) -> Tensor:
    """Cross-entropy at the masked positions, summed over the batch (Devlin et al. 2019, section 3.1). A scalar."""
    logits = model(input_ids, position_ids, segment_ids, positions)
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")


def _compiled(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    # On a CPU the compiler's own random numbers, for dropout, are slower than torch's.
    own_random = torch.cuda.is_available()
    return torch.compile(loss, dynamic=False, options={"fallback_random": not own_random})


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
        compile: bool = False,
    ) -> None:
        super().__init__(model, optim, schedule, num_steps, seed)
        self.tokens_per_character, self.unigram_entropy = tokens_per_character, unigram_entropy
        self.summed_loss = _compiled(masked_lm_loss) if compile else masked_lm_loss
        self.loss_sum, self.target_count = SumMetric(), SumMetric()

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a micro-batch, scaled so that the gradient is that of the mean over the global batch."""
        return self.note_loss(self._summed(batch) / batch["num_targets"])

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add a batch to the validation loss."""
        self.loss_sum.update(self._summed(batch))
        self.target_count.update((batch["targets"] != IGNORED).sum())

    def on_validation_epoch_end(self) -> None:
        """Log loss, perplexity, bits per character and the unigram line."""
        loss = float(self.loss_sum.compute() / self.target_count.compute())
        self.loss_sum.reset()
        self.target_count.reset()
        metrics = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 100.0)),
            "bits_per_character": loss / math.log(2) * self.tokens_per_character,
            "unigram_entropy": self.unigram_entropy,
        }
        self.log_dict({f"validation/{name}": value for name, value in metrics.items()})

    def _summed(self, batch: dict[str, Any]) -> Tensor:
        return self.summed_loss(
            self.model,
            batch["input_ids"],
            batch["position_ids"],
            batch["segment_ids"],
            batch["positions"],
            batch["targets"],
        )
