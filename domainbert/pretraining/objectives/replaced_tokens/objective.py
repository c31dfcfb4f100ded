"""Replaced-token detection: a generator fills hidden tokens, a discriminator detects which tokens were replaced.

Clark et al. 2020 (ELECTRA, arXiv:2003.10555), section 2, and He et al. 2021 (DeBERTaV3, arXiv:2111.09543), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from domainbert.base.counter_random import random_bits
from domainbert.base.errors import DomainbertError
from domainbert.data.packing import IGNORE_INDEX, Batch, RowPlan
from domainbert.data.splits import PreparedCorpus
from domainbert.encoders.families import REPLACED, TOKENS, head_kinds
from domainbert.encoders.packed import Packed
from domainbert.models.folder import open_model
from domainbert.pretraining.losses import base_rate_warnings, entropy, softmax_losses, softmax_terms
from domainbert.pretraining.masking import Masker
from domainbert.pretraining.objective import (
    MODEL,
    BuiltModel,
    CardTexts,
    CorpusRows,
    InitialModels,
    Key,
    Models,
    Objective,
    Term,
    ValidationText,
)
from domainbert.pretraining.objectives.masked_lm.objective import MaskedLMObjective
from domainbert.pretraining.objectives.replaced_tokens.sharing import merge_differences, share_embeddings
from domainbert.pretraining.token_prediction import unigram_entropy
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token

if TYPE_CHECKING:
    from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens

GENERATOR, DISCRIMINATOR = "generator", "discriminator"
LABELS = ("original", "replaced")
_SAMPLE = 4  # stream of random numbers, different from the streams of masking


class ReplacedTokensObjective(Objective["ReplacedTokens"]):
    """Trains a masked-LM generator and a discriminator, which becomes the model, in the same steps.

    The discriminator reads all tokens, including [CLS] and [SEP], as in the authors' code. Its head is the family's
    discriminator head, if there is one, otherwise a token classifier with the labels `original` and `replaced`.
    """

    inputs = (*Packed._fields, "masked_ids", "positions", "masked", "targets", "uniforms")
    measured = (
        GENERATOR,
        "masked",
        DISCRIMINATOR,
        "read",
        "replaced",
        "predicted_positive",
        "true_positive",
        "correct",
    )
    summary = "The discriminator of replaced tokens, pretrained with domainbert; its generator is in `generator/`."
    usage = (
        "from transformers import AutoModel, AutoModelForMaskedLM\n\n"
        'model = AutoModel.from_pretrained(".")\n'
        'generator = AutoModelForMaskedLM.from_pretrained("generator")'
    )

    def __init__(self, config: ReplacedTokens, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer)
        self.terms = {
            **softmax_terms(GENERATOR, Term(config.generator_weight, "num_masked"), config.z_loss),
            DISCRIMINATOR: Term(config.discriminator_weight, "num_read"),
        }
        self.masker = Masker(config.masking, tokenizer.mask_id, tokenizer.vocab_size, tokenizer.special_ids)

    def for_validation(self) -> ReplacedTokensObjective:
        """Return an objective that masks 15 % of single pieces, all as [MASK], and samples at temperature 1."""
        config = replace(self.config, mlm_probability=0.15, mask_share=1.0, whole_word=False, temperature=1.0)
        return ReplacedTokensObjective(replace(config, final_mlm_probability=None), self.tokenizer)

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """Return the original `input_ids`, the generator's input `masked_ids`, the positions `masked` (R * K,) of
        hidden tokens in the flattened tokens, their ids `targets` and random numbers `uniforms` for `sample_ids`."""
        input_ids = rows.packed.input_ids
        masked = self.masker.mask(input_ids, rows.starts_word, key)
        bits = random_bits(_SAMPLE, key.seed, key.epochs[:, None], key.rows[:, None], masked.positions)
        return {
            "input_ids": input_ids,
            "masked_ids": masked.input_ids,
            "positions": np.arange(input_ids.size),
            "masked": masked.flat_positions,
            "targets": masked.labels.ravel(),
            "uniforms": ((bits >> np.uint64(40)) * 2.0**-24).astype(np.float32).ravel(),  # exact in 24 bits
        }

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Return a note for each token that the generator predicts: whether the generator sees it, and the token."""
        masked_ids, length = np.asarray(batch["masked_ids"]).ravel(), rows.packed.input_ids.shape[1]
        notes = [""] * len(masked_ids)
        for position, target in zip(batch["masked"].tolist(), batch["targets"].tolist(), strict=True):
            if target != IGNORE_INDEX:
                action = "hidden from" if masked_ids[position] == self.tokenizer.mask_id else "visible to"
                token = self.tokenizer.pieces.readable(self.tokenizer.tokens[target])
                notes[position] = f"{action} the generator, whose sample replaces {token}"
        return [notes[start : start + length] for start in range(0, len(notes), length)]

    @override
    def heaviest_step(self, steps: range) -> int:
        return self.config.masking.step_with_most_targets(steps)

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """Return the number of tokens that the generator predicts (`num_masked`, at least 1) and of all tokens except
        padding (`num_read`)."""
        pieces_per_row = plan.row_offsets[key.rows + 1] - plan.row_offsets[key.rows]
        masked = int(self.masker.num_masked(plan.maskable_tokens[key.rows], key.progress).sum())
        num_read = int((plan.text_tokens[key.rows] + plan.extra * pieces_per_row).sum())
        return {"num_masked": max(masked, 1), "num_read": num_read}

    def build(self, start: InitialModels) -> dict[str, BuiltModel]:
        """Return discriminator (`MODEL`) and generator, with weights of the folder to continue from, if there is one.

        Raises:
            DomainbertError: the folder's generator differs from the settings, or embeddings cannot be shared.
        """
        # discriminator
        config = start.config
        head, labels = (REPLACED, ()) if REPLACED in head_kinds(config) else (TOKENS, LABELS)
        self.config.check(config)
        model = BuiltModel(start.model(head, labels), config, head, labels)
        # generator: new, or from the subfolder of the folder to continue from
        folder = None if start.folder is None else open_model(start.folder).path / GENERATOR
        is_new = folder is None or not folder.is_dir()
        expected = start.architectures.get(GENERATOR) or self.config.generator_config_for(config)
        if is_new:
            generator = BuiltModel(start.random_model(expected, "masked_lm"), expected, "masked_lm")
        else:
            generator_start = replace(start, folder=folder)
            if self.config.generator is not None and generator_start.config != expected:
                raise DomainbertError(
                    where="objective.generator",
                    found=f"another architecture than in {folder}",
                    expected="the same architecture, or no objective.generator, to use the generator of this folder",
                )
            generator = BuiltModel(generator_start.model("masked_lm"), generator_start.config, "masked_lm")
        share_embeddings(model, generator, self.config.sharing, new=is_new)
        return {MODEL: model, GENERATOR: generator}

    def saved(self, built: Mapping[str, BuiltModel]) -> Mapping[str, BuiltModel]:
        """Return both models; with `gdes`, a copy of the discriminator, whose differences are ordinary embeddings."""
        if self.config.sharing != "gdes":
            return built
        copied = replace(built[MODEL], model=deepcopy(built[MODEL].model))
        merge_differences(copied.model.encoder)
        return {**built, MODEL: copied}

    @override
    def card_texts(self, name: str) -> CardTexts:
        if name != GENERATOR:
            return super().card_texts(name)
        summary = "The generator of replaced tokens, a masked language model pretrained with domainbert with `../`."
        return CardTexts(summary, MaskedLMObjective.usage, MaskedLMObjective.pipeline_tag)

    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return summed losses and numbers of tokens.

        `masked` and `read` are the divisors of the losses. `replaced`: replaced tokens; `predicted_positive`: tokens
        that the discriminator classifies as replaced; `true_positive`: replaced tokens that it classifies as replaced;
        `correct`: tokens that it classifies correctly.
        """
        tokens, targets = Packed.of(batch), batch["targets"]
        generator_logits = models[GENERATOR](tokens._replace(input_ids=batch["masked_ids"]), batch["masked"]).float()
        sampled_ids = sample_ids(generator_logits.detach(), batch["uniforms"], self.config.temperature)
        corrupted = replace_tokens(tokens.input_ids, batch["masked"], targets, sampled_ids)
        all_positions = batch["positions"]  # (B * S,), so scores are in the order of the flattened tokens
        scores = replaced_logits(models[MODEL](tokens._replace(input_ids=corrupted), all_positions).float())
        is_text = tokens.segment_ids.flatten() > 0
        is_replaced = (corrupted != tokens.input_ids).flatten()
        losses = functional.binary_cross_entropy_with_logits(scores, is_replaced.to(scores.dtype), reduction="none")
        predicted = (scores > 0) & is_text
        return {
            **softmax_losses(GENERATOR, generator_logits, targets, self.config.z_loss),
            "masked": (targets != IGNORE_INDEX).sum(),
            DISCRIMINATOR: torch.where(is_text, losses, 0.0).sum(),
            "read": is_text.sum(),
            "replaced": is_replaced.sum(),
            "predicted_positive": predicted.sum(),
            "true_positive": (predicted & is_replaced).sum(),
            "correct": ((predicted == is_replaced) & is_text).sum(),
        }

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """Return the losses, and accuracy, precision and recall of the discriminator. `base_rate_entropy` is its loss
        if it predicts the share of replaced tokens for each token."""
        values = {name: float(value) for name, value in sums.items()}
        generator_loss = values[GENERATOR] / values["masked"]
        discriminator_loss = values[DISCRIMINATOR] / values["read"]
        share_replaced = values["replaced"] / values["read"]
        return {
            "loss": self.config.generator_weight * generator_loss
            + self.config.discriminator_weight * discriminator_loss,
            "generator_loss": generator_loss,
            "discriminator_loss": discriminator_loss,
            "accuracy": values["correct"] / values["read"],
            "precision": values["true_positive"] / max(values["predicted_positive"], 1),
            "recall": values["true_positive"] / max(values["replaced"], 1),
            "replaced": share_replaced,
            "base_rate_entropy": entropy(share_replaced),
            **text.baselines,
        }

    def baselines(self, corpus: PreparedCorpus) -> dict[str, float]:
        """Return the loss of a generator that predicts by token frequency, in nats per token."""
        return {"unigram_entropy": unigram_entropy(corpus, self.tokenizer.special_ids)}

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """Return no facts, and a warning about a discriminator that is hardly better than the base rate."""
        loss, base_rate_entropy = validation["discriminator_loss"], validation["base_rate_entropy"]
        consequence = "the discriminator has hardly learned, and fine-tuning it may be worse than training from scratch"
        return {}, base_rate_warnings("the discriminator's loss", loss, base_rate_entropy, consequence)

    def flops_per_token(self, models: Models, length: int) -> float:
        """Return the operations of both models per token.

        The generator's head reads masked tokens: the share in mid-training. The discriminator's head reads all tokens.
        """
        masked_share = self.config.masking.mlm_probability_at(0.5)
        generator = flops_per_token(models[GENERATOR], length, masked_share)
        return generator + flops_per_token(models[MODEL], length, predicted_share=1.0)

    @override
    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        return {
            "validation loss of the discriminator": f"{validation['discriminator_loss']:.4f} nats per token; "
            f"{validation['base_rate_entropy']:.4f} for a guess from the share of replaced tokens",
            "replaced tokens": f"{validation['replaced']:.2%} of all; precision {validation['precision']:.4f}, "
            f"recall {validation['recall']:.4f}",
            "validation loss of the generator": f"{validation['generator_loss']:.4f} nats per masked token",
        }


def sample_ids(logits: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    """Sample ids (N,) from softmax(logits / temperature), (N, V), by inverting the cumulative distribution at
    `uniforms` (N,) in [0, 1), without synchronising with the host."""
    sums = (logits.float() / temperature).softmax(dim=-1).cumsum(dim=-1)
    ids = torch.searchsorted(sums, uniforms.unsqueeze(-1) * sums[:, -1:], right=True)
    return ids.squeeze(-1).clamp(max=logits.shape[-1] - 1)  # sums on a GPU may decrease in the last bit


def replace_tokens(input_ids: Tensor, masked: Tensor, targets: Tensor, sampled_ids: Tensor) -> Tensor:
    """Return `input_ids` (B, S) with `sampled_ids` (N,) at the flat positions `masked` (N,).

    Positions whose target is `IGNORE_INDEX` are unchanged.
    """
    flat = input_ids.flatten()
    new_ids = torch.where(targets == IGNORE_INDEX, flat[masked], sampled_ids)
    return flat.scatter(0, masked, new_ids).view_as(input_ids)


def replaced_logits(logits: Tensor) -> Tensor:
    """Return the log odds (N,) that a token was replaced, from logits (N, 1), or (N, 2) for the `LABELS`."""
    return logits[:, 0] if logits.shape[-1] == 1 else logits[:, 1] - logits[:, 0]
