"""Masked LM: predicts hidden tokens (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.data.packing import IGNORE_INDEX, Batch, RowPlan
from domainbert.data.splits import PreparedCorpus
from domainbert.models.card import load_code
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.masking import Masker
from domainbert.pretraining.objective import MODEL, CorpusRows, Key, Models
from domainbert.pretraining.token_prediction import TokenPrediction, ordinary_counts
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token

if TYPE_CHECKING:
    from domainbert.pretraining.objectives.masked_lm.config import MaskedLM

MASKED = "masked_lm"  # term of the loss
_MARGIN = 0.3  # nats per token; only a loss this far below the unigram entropy shows that context is used
FloatArray = NDArray[np.float64]


class MaskedLMObjective(TokenPrediction["MaskedLM"]):
    """Masked LM of one model."""

    loss_name = MASKED
    pipeline_tag = "fill-mask"
    summary = "A masked language model pretrained with domainbert."
    usage = load_code("AutoModelForMaskedLM")

    def __init__(self, config: MaskedLM, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer, config.z_loss)
        self.masker = Masker(config.masking, tokenizer.mask_id, tokenizer.vocab_size, tokenizer.special_ids)

    def for_validation(self) -> MaskedLMObjective:
        """Return an objective with the default masking: 15 % of single pieces; 80 % [MASK], 10 % random, 10 % kept."""
        return type(self)(replace(self.config, masking=MaskingConfig()), self.tokenizer)

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """Return `input_ids` (R, S) with hidden tokens, and their positions in the flattened tokens and original ids,
        `positions` and `targets` (R * K,)."""
        masked = self.masker.mask(rows.packed.input_ids, rows.starts_word, key)
        return {"input_ids": masked.input_ids, "positions": masked.flat_positions, "targets": masked.labels.ravel()}

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Return a note for each token to predict: whether it is hidden, random or kept, and the target."""
        input_ids, length = np.asarray(batch["input_ids"]).ravel(), rows.packed.input_ids.shape[1]
        notes = [""] * len(input_ids)
        for position, target in zip(batch["positions"].tolist(), batch["targets"].tolist(), strict=True):
            if target != IGNORE_INDEX:
                if input_ids[position] == self.tokenizer.mask_id:
                    action = "hidden"
                else:
                    action = "kept" if input_ids[position] == target else "random"
                token = self.tokenizer.pieces.readable(self.tokenizer.tokens[target])
                notes[position] = f"{action}; the target is {token}"
        return [notes[start : start + length] for start in range(0, len(notes), length)]

    @override
    def heaviest_step(self, steps: range) -> int:
        return self.config.masking.step_with_most_targets(steps)

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """Return `num_targets`: number of masked tokens, at least 1."""
        masked = int(self.masker.num_masked(plan.maskable_tokens[key.rows], key.progress).sum())
        return {"num_targets": max(masked, 1)}

    @override
    def loss_without_context(self, corpus: PreparedCorpus) -> float:
        return loss_without_context(corpus, MaskingConfig(), self.tokenizer.special_ids)  # as in validation

    @override
    def flops_per_token(self, models: Models, length: int) -> float:
        """Return the operations per token, with the masked share in the middle of training."""
        return flops_per_token(models[MODEL], length, self.config.masking.mlm_probability_at(0.5))


def loss_without_context(corpus: PreparedCorpus, masking: MaskingConfig, special_ids: Collection[int]) -> float:
    """Return the masked-LM loss that is reachable without context, in nats per masked token of validation.

    For a [MASK], the best prediction is the token frequency in training. For a kept or randomly replaced
    token, the visible token is informative, and Bayes' rule on these frequencies gives the best prediction: a frequent
    token is unlikely to be a random replacement. This lowers the loss from about 7 to 6.3 nats. The number of hidden
    tokens and whole words are irrelevant, because validation hides single pieces.
    """
    counts, held_out = ordinary_counts(corpus, special_ids)
    train = counts + 1.0
    validation = held_out.astype(np.float64)
    return float(_context_free_loss(train / train.sum(), validation / max(validation.sum(), 1), masking))


def _context_free_loss(train: FloatArray, validation: FloatArray, masking: MaskingConfig) -> float:
    """Return the cross-entropy of the best prediction without context, in nats: from the token frequencies `train` (V,)
    of training, for tokens with the frequencies `validation` (V,).

    If token v is visible, Bayes' rule gives the probability that the original token is t:
    P(v | t) train[t] / visible[v], where P(v | t) is `each_share`, and for v = t `kept_share` + `each_share`.
    """
    each_share = masking.random_share / len(train)  # probability that a token is replaced by a given token
    kept_share = 1 - masking.mask_share - masking.random_share
    entropy = -(validation * np.log(train)).sum()
    visible = kept_share * train + each_share  # (V,) probability that an unmasked token is v
    hidden_loss, kept_loss, replaced_loss = masking.mask_share * entropy, 0.0, 0.0
    if kept_share > 0:
        kept_loss = -kept_share * (validation * np.log((kept_share + each_share) * train / visible)).sum()
    if each_share > 0:
        # the mean over all replacements, which are equally probable; the bonus is for the token itself as replacement
        bonus = each_share * np.log((kept_share + each_share) / each_share)
        replaced_loss = masking.random_share * (entropy + np.log(visible / each_share).mean()) - bonus
    return min(float(hidden_loss + kept_loss + replaced_loss), float(entropy) - _MARGIN)  # see `_MARGIN`
