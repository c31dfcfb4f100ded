"""Masked LM: hidden tokens are predicted (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from domainbert.data.packing import RowPlan
from domainbert.data.splits import PreparedCorpus
from domainbert.data.types import IGNORED, Batch
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.pretraining.config import CORPUS_ADVICE, MaskingConfig
from domainbert.pretraining.masking import Masker, frequency_weights
from domainbert.pretraining.objective import MODEL, Built, CorpusRows, Key, Models, Objective, Term, ValidationText
from domainbert.pretraining.softmax import cross_entropy, softmax_losses, softmax_terms
from domainbert.pretraining.start import Start
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token

if TYPE_CHECKING:
    from domainbert.pretraining.objectives.masked_lm.config import MaskedLM

MASKED = "masked_lm"  # the loss of hidden tokens among the terms
_LEARNT = 0.3  # nats per token below the unigram entropy
FloatArray = NDArray[np.float64]


class MaskedLMObjective(Objective["MaskedLM"]):
    """Masked LM of one model."""

    inputs = (*Packed._fields, "positions", "targets")
    measured = ("loss", "targets")
    pipeline_tag = "fill-mask"
    summary = "A masked language model pretrained with domainbert."
    usage = "from transformers import AutoModelForMaskedLM\n\nmodel = AutoModelForMaskedLM.from_pretrained(folder)"

    def __init__(self, config: MaskedLM, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer)
        self.terms = softmax_terms(MASKED, Term(), config.z_loss)
        self.masker = Masker(config.masking, tokenizer.mask_id, tokenizer.vocab_size, tokenizer.special_ids)

    def for_training(self, corpus: PreparedCorpus) -> MaskedLMObjective:
        """With the counts of the corpus' entries, where masking depends on them."""
        if not self.config.masking.frequency_power:
            return self
        learnt = copy(self)
        learnt.masker = replace(self.masker, counts=corpus.train.token_counts(corpus.vocab_size))
        return learnt

    def for_validation(self) -> MaskedLMObjective:
        """Always 15 % of single pieces, split 80/10/10."""
        return MaskedLMObjective(replace(self.config, masking=MaskingConfig()), self.tokenizer)

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """Hidden tokens: `positions` and `targets` (R * K,) say where they stood in the flattened tokens, and which."""
        input_ids = rows.packed.input_ids
        masked = self.masker.mask(input_ids, rows.starts_word, key)
        positions = masked.positions + np.arange(len(input_ids))[:, None] * input_ids.shape[1]  # (R, K)
        return {"input_ids": masked.input_ids, "positions": positions.ravel(), "targets": masked.labels.ravel()}

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Of the tokens to predict: what was done to each, and which it is."""
        written, read = rows.packed.input_ids.ravel(), np.asarray(batch["input_ids"]).ravel()
        notes = [""] * len(written)
        for place, target in zip(batch["positions"].tolist(), batch["targets"].tolist(), strict=True):
            if target != IGNORED:
                done = "kept" if read[place] == target else "random"
                done = "hidden" if read[place] == self.tokenizer.mask_id else done
                notes[place] = f"{done}; the target is {self.tokenizer.pieces.shown(self.tokenizer.tokens[target])}"
        length = rows.packed.input_ids.shape[1]
        return [notes[start : start + length] for start in range(0, len(notes), length)]

    @override
    def heaviest_step(self, steps: range) -> int:
        """The step with the most hidden tokens."""
        return self.config.masking.step_of_most(steps)

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """`num_targets`: masked tokens, or 1 where there is none to divide by."""
        masked = int(self.masker.num_masked(plan.maskable_tokens[key.rows], key.progress).sum())
        return {"num_targets": max(masked, 1)}

    def build(self, start: Start) -> dict[str, Built]:
        """The encoder with a masked-LM head."""
        return {MODEL: Built(start.model("masked_lm"), start.config, "masked_lm")}

    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The loss of masked tokens, and their z-loss where it has a factor."""
        return softmax_losses(MASKED, _logits(models[MODEL], batch), batch["targets"], self.config.z_loss)

    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The summed loss and the number of masked tokens."""
        return {"loss": masked_lm_loss(models[MODEL], batch), "targets": (batch["targets"] != IGNORED).sum()}

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """Loss and bits per character; of the corpus' own text perplexity and the unigram line, too."""
        loss = float(sums["loss"] / sums["targets"])
        found = {"loss": loss, "bits_per_character": loss / math.log(2) * text.tokens_per_character}
        if not text.name:
            found |= {"perplexity": math.exp(min(loss, 100.0)), **text.baselines}
        return found

    def baselines(self, corpus: PreparedCorpus) -> dict[str, float]:
        """The loss of guessing by frequency."""
        return {"unigram_entropy": unigram_entropy(corpus, self.tokenizer.special_ids)}

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """A loss that needs no context is a warning: of masks as validation has them, and of guesses as trained."""
        of_validation = MaskingConfig(frequency_power=self.config.masking.frequency_power)
        without = loss_without_context(corpus, of_validation, self.tokenizer.special_ids)
        return {"loss_without_context": without}, warnings(validation["loss"], without)

    @override
    def flops_per_token(self, models: Models, length: int) -> float:
        """Operations a token; where the masked share changes, those of a step in the middle."""
        return flops_per_token(models[MODEL], length, self.config.masking.mlm_probability_at(0.5))

    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        """Loss and bits per character."""
        return {
            "validation loss": f"{validation['loss']:.4f} nats per masked token",
            "bits per character": f"{validation['bits_per_character']:.4f}",
        }


def masked_lm_loss(model: EncoderWithHead, batch: Mapping[str, Tensor]) -> Tensor:
    """Cross-entropy at the masked positions, summed over the batch. A scalar."""
    return cross_entropy(_logits(model, batch), batch["targets"])


def _logits(model: EncoderWithHead, batch: Mapping[str, Tensor]) -> Tensor:
    logits: Tensor = model(Packed.of(batch), batch["positions"])
    return logits


def warnings(loss: float, without_context: float) -> list[str]:
    """A validation loss that needs no context, see `loss_without_context`; both in nats per masked token."""
    if loss < without_context:
        return []
    return [
        f"the validation loss is {loss:.4f}, and {without_context:.4f} is reached without reading any context: a model "
        f"that starts from here may be worse than one from scratch; {CORPUS_ADVICE}"
    ]


def _hidden_counts(corpus: PreparedCorpus, special_ids: Collection[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Occurrences of each entry in training and in validation, without those that are never hidden: special tokens,
    the unknown one among them."""
    train, validation = (one.token_counts(corpus.vocab_size).copy() for one in (corpus.train, corpus.validation))
    train[list(special_ids)] = validation[list(special_ids)] = 0
    return train, validation


def unigram_entropy(corpus: PreparedCorpus, special_ids: Collection[int]) -> float:
    """The loss of guessing by frequency: nats per validation token under the training split's token frequencies.

    A model that has not beaten it has learnt nothing about context. Frequencies are smoothed by adding one; special
    tokens are never hidden, and count nothing.
    """
    counts, validation = _hidden_counts(corpus, special_ids)
    train = counts + 1
    return float(-(validation * np.log(train / train.sum())).sum() / max(validation.sum(), 1))


def loss_without_context(corpus: PreparedCorpus, masking: MaskingConfig, special_ids: Collection[int]) -> float:
    """The loss of masked LM that is reached without reading any context: nats per masked token of validation.

    Where a token is hidden, that is guessing by frequency, of the tokens that are hidden in training. Where it was left
    as it is or replaced at random, one entry is seen in its place, and the best guess is made from that entry alone
    (Bayes' rule on these frequencies): a frequent one was hardly put there by chance. Of an entropy of 7 nats that
    saves some 0.7. Where masking gives away nothing, 0.3 nats below the entropy is the least that counts as reading.
    How many tokens are hidden, and which of them together, does not matter: validation hides single pieces.
    """
    counts, held_out = _hidden_counts(corpus, special_ids)
    train = (counts + 1) * frequency_weights(counts, masking.frequency_power)
    validation = held_out.astype(np.float64)
    return float(_without_context(train / train.sum(), validation / max(validation.sum(), 1), masking))


def _without_context(guess: FloatArray, truth: FloatArray, masking: MaskingConfig) -> float:
    """The cross-entropy of that guess; both (V,), the shares of each entry in training and validation."""
    each = masking.random_share / len(guess)  # how often one entry replaces another
    kept = 1 - masking.mask_share - masking.random_share
    hidden = -(truth * np.log(guess)).sum()
    loss = masking.mask_share * hidden
    seen = kept * guess + each
    if kept > 0:
        loss -= kept * (truth * np.log((kept + each) * guess / seen)).sum()
    if each > 0:
        loss += masking.random_share * (hidden + np.log(seen / each).mean()) - each * np.log((kept + each) / each)
    return min(float(loss), float(hidden) - _LEARNT)
