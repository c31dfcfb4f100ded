"""Base of the objectives whose loss is the cross-entropy of tokens that one model with a masked-LM head predicts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from domainbert.data.packing import IGNORE_INDEX
from domainbert.data.splits import PreparedCorpus
from domainbert.encoders.families import MASKED_LM
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.pretraining.config import CORPUS_ADVICE, ObjectiveConfig
from domainbert.pretraining.losses import cross_entropy, softmax_losses, softmax_terms
from domainbert.pretraining.objective import MODEL, Models, Objective, Term, ValidationText
from domainbert.tokenization.load import DomainTokenizer

Config = TypeVar("Config", bound=ObjectiveConfig)


class TokenPrediction(Objective[Config]):
    """Predicts tokens at `positions` of the batch: `targets` (N,), `IGNORE_INDEX` where none is predicted.

    A subclass defines `corrupt`, `counts` and `loss_without_context`.

    Attributes:
        loss_name: name of the cross-entropy among the terms of the loss.
    """

    head = MASKED_LM
    loss_name: str
    measured: Sequence[str] = ("loss", "targets")

    def __init__(self, config: Config, tokenizer: DomainTokenizer, z_loss: float = 0.0) -> None:
        super().__init__(config, tokenizer)
        self.z_loss = z_loss
        self.terms = softmax_terms(self.loss_name, Term(), z_loss)

    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the cross-entropy of the targets and, with a positive weight, their z-loss; both are sums."""
        return softmax_losses(self.loss_name, _logits(models[MODEL], batch), batch["targets"], self.z_loss)

    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the summed loss and the number of predicted tokens (`targets`)."""
        loss = cross_entropy(_logits(models[MODEL], batch), batch["targets"])
        return {"loss": loss, "targets": (batch["targets"] != IGNORE_INDEX).sum()}

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """Return loss and bits per character; for the whole validation split, also perplexity and unigram entropy."""
        loss = float(sums["loss"] / sums["targets"])
        metrics = {"loss": loss, "bits_per_character": loss / math.log(2) * text.tokens_per_character}
        is_whole_split = not text.name
        if is_whole_split:
            metrics |= {"perplexity": math.exp(min(loss, 100.0)), **text.baselines}
        return metrics

    def baselines(self, corpus: PreparedCorpus) -> dict[str, float]:
        """Return the loss of predictions by token frequency, `unigram_entropy`, in nats per token."""
        return {"unigram_entropy": unigram_entropy(corpus, self.tokenizer.special_ids)}

    @abstractmethod
    def loss_without_context(self, corpus: PreparedCorpus) -> float:
        """Return the validation loss that is reachable without context, in nats per predicted token."""

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """Return `loss_without_context` and, if the validation loss is not below it, a warning."""
        baseline = self.loss_without_context(corpus)
        facts = {"loss_without_context": baseline}
        if validation["loss"] < baseline:
            return facts, []
        return facts, [
            f"the validation loss is {validation['loss']:.4f}, but {baseline:.4f} is reached without reading any "
            f"context: fine-tuning this model may be worse than training from scratch; {CORPUS_ADVICE}"
        ]

    @override
    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        return {
            "validation loss": f"{validation['loss']:.4f} nats per predicted token",
            "bits per character": f"{validation['bits_per_character']:.4f}",
        }


def _logits(model: EncoderWithHead, batch: Mapping[str, Tensor]) -> Tensor:
    logits: Tensor = model(Packed.of(batch), batch["positions"])
    return logits


def ordinary_counts(
    corpus: PreparedCorpus, special_ids: Collection[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the token counts (V,) in training and validation; 0 for special tokens, which are never predicted."""
    train, validation = (split.token_counts(corpus.vocab_size).copy() for split in (corpus.train, corpus.validation))
    train[list(special_ids)] = validation[list(special_ids)] = 0
    return train, validation


def unigram_entropy(corpus: PreparedCorpus, special_ids: Collection[int]) -> float:
    """Return the cross-entropy of validation tokens under the training frequencies, in nats per token.

    A model that is not better does not use context. Frequencies are smoothed by adding one; special tokens are
    excluded, because they are never predicted.
    """
    counts, validation = ordinary_counts(corpus, special_ids)
    train = counts + 1
    return float(-(validation * np.log(train / train.sum())).sum() / max(validation.sum(), 1))
