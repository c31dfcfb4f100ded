"""The detection of replaced tokens: batches, two models that learn together, losses and what validation says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from domainbert.base.counter_random import random_bits, uniform
from domainbert.data.packing import IGNORE_INDEX, Batch, RowPlan
from domainbert.data.splits import PreparedCorpus
from domainbert.encoders.packed import Packed
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.masking import Masker
from domainbert.pretraining.objective import (
    MODEL,
    BuiltModel,
    CorpusRows,
    InitialModels,
    Key,
    Models,
    Objective,
    Term,
    ValidationText,
)
from domainbert.tokenization.load import DomainTokenizer
from mine.replaced_tokens.config import ReplacedTokens

GENERATOR, LABELS = "generator", ("original", "replaced")
_SAMPLE = 1000  # stream of random numbers
_RISING = 10  # steps


class ReplacedTokensObjective(Objective[ReplacedTokens]):
    """A generator of one layer, which shares the word embeddings, fills hidden tokens; the model detects them."""

    inputs = (*Packed._fields, "masked_ids", "positions", "masked", "targets", "uniform")
    measured = (GENERATOR, "hidden", "discriminator", "read", "right")
    summary = "An encoder that was pretrained to detect replaced tokens."

    def __init__(self, config: ReplacedTokens, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer)
        self.terms = {GENERATOR: Term(1.0, "num_hidden"), "discriminator": Term(config.weight, "num_read")}

    def for_validation(self) -> ReplacedTokensObjective:
        """See `Objective.for_validation`."""
        return ReplacedTokensObjective(dataclasses.replace(self.config, last_rate=0.15), self.tokenizer)

    def masker(self, step: int) -> Masker:
        """What hides tokens in a step."""
        rate = 0.15 + (self.config.last_rate - 0.15) * min(step, _RISING) / _RISING
        masking = MaskingConfig(rate, mask_share=1.0, random_share=0.0)
        tokenizer = self.tokenizer
        return Masker(masking, tokenizer.mask_id, tokenizer.vocab_size, tokenizer.special_ids)

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """See `Objective.corrupt`."""
        packed = rows.packed
        masked = self.masker(key.step).mask(packed.input_ids, rows.starts_word, key)
        places = np.arange(len(key.rows))[:, None] * packed.input_ids.shape[1] + masked.positions  # (R, K)
        slots = np.arange(places.shape[1])
        bits = random_bits(_SAMPLE, key.seed, key.epochs[:, None], key.rows[:, None], slots[None, :])
        return {
            "input_ids": packed.input_ids,
            "masked_ids": masked.input_ids,
            "positions": np.flatnonzero(packed.segment_ids),
            "masked": places.ravel(),
            "targets": masked.labels.ravel(),
            "uniform": uniform(bits).astype(np.float32).ravel(),
        }

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """See `Objective.counts`."""
        pieces = plan.row_offsets[key.rows + 1] - plan.row_offsets[key.rows]
        return {
            "num_hidden": int(self.masker(key.step).num_masked(plan.maskable_tokens[key.rows], key.progress).sum()),
            "num_read": int((plan.text_tokens[key.rows] + self.tokenizer.template.num_special_tokens() * pieces).sum()),
        }

    def build(self, start: InitialModels) -> dict[str, BuiltModel]:
        """See `Objective.build`."""
        model = start.model("tokens", LABELS)
        small = start.config.resized(dataclasses.replace(start.config.sizes, num_layers=1))
        folder = start.folder and start.folder / GENERATOR
        if folder and folder.is_dir():
            generator = dataclasses.replace(start, folder=folder).model("masked_lm")
        else:
            generator = start.random_model(small, "masked_lm")
        generator.encoder.input_embeddings.weight = model.encoder.input_embeddings.weight
        return {
            MODEL: BuiltModel(model, start.config, "tokens", LABELS),
            GENERATOR: BuiltModel(generator, small, "masked_lm"),
        }

    def saved(self, built: Mapping[str, BuiltModel]) -> Mapping[str, BuiltModel]:
        """See `Objective.saved`."""
        return built if self.config.keep_generator else {MODEL: built[MODEL]}

    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Objective.measure`."""
        ids, targets, tokens = batch["input_ids"].flatten(), batch["targets"], Packed.of(batch)
        guesses = models[GENERATOR](tokens._replace(input_ids=batch["masked_ids"]), batch["masked"]).float()
        summed = guesses.detach().softmax(-1).cumsum(-1)
        sampled = (summed < batch["uniform"].unsqueeze(-1)).sum(-1).clamp(max=guesses.shape[-1] - 1)
        used = targets != IGNORE_INDEX
        replaced = ids.index_put((batch["masked"][used],), sampled[used])
        labels = (replaced != ids)[batch["positions"]].long()
        logits = models[MODEL](
            tokens._replace(input_ids=replaced.view_as(tokens.input_ids)), batch["positions"]
        ).float()
        return {
            GENERATOR: functional.cross_entropy(guesses, targets, ignore_index=IGNORE_INDEX, reduction="sum"),
            "hidden": used.sum(),
            "discriminator": functional.cross_entropy(logits, labels, reduction="sum"),
            "read": torch.tensor(len(labels)),
            "right": (logits.argmax(-1) == labels).sum(),
        }

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """See `Objective.report`."""
        generator, read = float(sums[GENERATOR] / sums["hidden"]), sums["read"]
        loss = generator + self.config.weight * float(sums["discriminator"] / read)
        return {"loss": loss, "generator_loss": generator, "accuracy": float(sums["right"] / read)}

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """See `Objective.judge`."""
        return {"always_original": 0.85}, ["no better than chance"] if validation["accuracy"] < 0.5 else []
