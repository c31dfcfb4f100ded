"""Replaced-token detection: a generator fills hidden tokens, a discriminator tells which are the text's own.

Clark et al. 2020 (ELECTRA, arXiv:2003.10555), section 2, and He et al. 2021 (DeBERTaV3, arXiv:2111.09543), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from domainbert.base.counter_random import random_bits
from domainbert.base.errors import DomainbertError
from domainbert.data.packing import RowPlan
from domainbert.data.splits import PreparedCorpus
from domainbert.data.types import IGNORED, Batch
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.families import REPLACED, TOKENS, head_kinds
from domainbert.encoders.packed import Packed
from domainbert.models.folder import open_model
from domainbert.pretraining.base_rate import entropy, is_learnt
from domainbert.pretraining.config import CORPUS_ADVICE
from domainbert.pretraining.masking import Masker
from domainbert.pretraining.objective import (
    MODEL,
    Built,
    CorpusRows,
    Key,
    Models,
    Objective,
    Presented,
    Term,
    ValidationText,
)
from domainbert.pretraining.objectives.masked_lm.objective import MaskedLMObjective, unigram_entropy
from domainbert.pretraining.objectives.replaced_tokens.sharing import join, share
from domainbert.pretraining.softmax import softmax_losses, softmax_terms
from domainbert.pretraining.start import Start
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token

if TYPE_CHECKING:
    from domainbert.pretraining.objectives.replaced_tokens.config import ReplacedTokens

GENERATOR, DISCRIMINATOR = "generator", "discriminator"
LABELS = ("original", "replaced")
_SAMPLE = 4  # stream of random numbers, behind those of masking


class ReplacedTokensObjective(Objective["ReplacedTokens"]):
    """A generator, which is masked LM, and a discriminator, which is the model; they learn in the same steps.

    The discriminator reads all tokens, [CLS] and [SEP] too, as in the authors' code. Its head is the family's own where
    there is one, otherwise that of token labels, `original` and `replaced`.
    """

    inputs = (*Packed._fields, "masked_ids", "positions", "masked", "targets", "uniforms")
    measured = (GENERATOR, "masked", DISCRIMINATOR, "read", "replaced", "suspected", "found", "right")
    summary = "The discriminator of replaced tokens, pretrained with domainbert; its generator stands in `generator/`."
    usage = (
        "from transformers import AutoModel, AutoModelForMaskedLM\n\n"
        "model = AutoModel.from_pretrained(folder)\n"
        'generator = AutoModelForMaskedLM.from_pretrained(f"{folder}/generator")'
    )

    def __init__(self, config: ReplacedTokens, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer)
        self.terms = {
            **softmax_terms(GENERATOR, Term(config.generator_weight, "num_masked"), config.z_loss),
            DISCRIMINATOR: Term(config.discriminator_weight, "num_read"),
        }
        self.masker = Masker(config.masking, tokenizer.mask_id, tokenizer.vocab_size, tokenizer.special_ids)

    def for_validation(self) -> ReplacedTokensObjective:
        """Always 15 % of single pieces, all hidden, and samples at temperature 1."""
        usual = replace(self.config, mlm_probability=0.15, mask_share=1.0, whole_word=False, temperature=1.0)
        return ReplacedTokensObjective(replace(usual, spans=None, final_mlm_probability=None), self.tokenizer)

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """The text as `input_ids`, what the generator sees of it as `masked_ids`; `masked` and `targets` (R * K,) say
        where hidden tokens stood in the flattened ones, and which, and `uniforms` what becomes of them, see `sampled`.
        """
        input_ids = rows.packed.input_ids
        masked = self.masker.mask(input_ids, rows.starts_word, key)
        bits = random_bits(_SAMPLE, key.seed, key.epochs[:, None], key.rows[:, None], masked.positions)
        return {
            "input_ids": input_ids,
            "masked_ids": masked.input_ids,
            "positions": np.arange(input_ids.size),
            "masked": (masked.positions + np.arange(len(input_ids))[:, None] * input_ids.shape[1]).ravel(),
            "targets": masked.labels.ravel(),
            "uniforms": ((bits >> np.uint64(40)) * 2.0**-24).astype(np.float32).ravel(),  # exact in 24 bits
        }

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Of the tokens that the generator predicts: what it sees of each. A sample of it takes their place."""
        tokens, pieces, seen = self.tokenizer.tokens, self.tokenizer.pieces, np.asarray(batch["masked_ids"]).ravel()
        notes = [""] * len(seen)
        for place, target in zip(batch["masked"].tolist(), batch["targets"].tolist(), strict=True):
            if target != IGNORED:
                done = "hidden" if seen[place] == self.tokenizer.mask_id else "shown"
                notes[place] = f"{done} to the generator, a sample replaces {pieces.shown(tokens[target])}"
        length = rows.packed.input_ids.shape[1]
        return [notes[start : start + length] for start in range(0, len(notes), length)]

    @override
    def heaviest_step(self, steps: range) -> int:
        """The step with the most hidden tokens."""
        return self.config.masking.step_of_most(steps)

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """`num_masked`: tokens that the generator predicts, or 1 where there is none to divide by; `num_read`: tokens
        but padding."""
        pieces = plan.row_offsets[key.rows + 1] - plan.row_offsets[key.rows]
        masked = int(self.masker.num_masked(plan.maskable_tokens[key.rows], key.progress).sum())
        return {
            "num_masked": max(masked, 1),
            "num_read": int((plan.text_tokens[key.rows] + plan.extra * pieces).sum()),
        }

    def build(self, start: Start) -> dict[str, Built]:
        """The discriminator and the generator; both from the folder to go on from, as far as they are there.

        Raises:
            DomainbertError: its generator is not the one that is asked for, or their embeddings cannot be shared.
        """
        config = start.config
        head, labels = (REPLACED, ()) if REPLACED in head_kinds(config) else (TOKENS, LABELS)
        self.config.check(config)
        model = Built(start.model(head, labels), config, head, labels)
        there = None if start.folder is None else open_model(start.folder).path / GENERATOR
        known = there is not None and there.is_dir()
        generator = self._generator(replace(start, folder=there) if known else start, config, known)
        if self.config.sharing != "none":
            share(model, generator, self.config.sharing, new=not known)
        return {MODEL: model, GENERATOR: generator}

    def _generator(self, start: Start, encoder: EncoderConfig, known: bool) -> Built:
        """The one in the folder of the start, if there is a `known` one, otherwise a new one beside an encoder."""
        wanted = self.config.generator_beside(encoder)
        if not known:
            return Built(start.random(wanted, "masked_lm"), wanted, "masked_lm")
        if self.config.generator is not None and start.config != wanted:
            raise DomainbertError(
                f"{start.folder}: not the generator that `generator` describes; expected the same, or none said"
            )
        return Built(start.model("masked_lm"), start.config, "masked_lm")

    def saved(self, built: Mapping[str, Built]) -> Mapping[str, Built]:
        """Both models; the discriminator's embeddings as they are, no longer as a difference."""
        join(built[MODEL].model.encoder)
        return built

    def presented(self, name: str) -> Presented:
        """The generator is a masked language model."""
        if name != GENERATOR:
            return super().presented(name)
        summary = "The generator of replaced tokens, a masked language model pretrained with domainbert beside `../`."
        return Presented(summary, MaskedLMObjective.usage, MaskedLMObjective.pipeline_tag)

    @override
    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        measured = self.measure(models, batch)
        return {name: measured[name] for name in self.terms}

    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The losses and the tokens they are of; tokens that are `replaced`, that are `suspected` to be, with more
        than even odds, that are both (`found`), and that are judged `right`."""
        tokens, targets = Packed.of(batch), batch["targets"]
        guesses = models[GENERATOR](tokens._replace(input_ids=batch["masked_ids"]), batch["masked"]).float()
        drawn = sampled(guesses.detach(), batch["uniforms"], self.config.temperature)
        corrupted = replaced(tokens.input_ids, batch["masked"], targets, drawn)
        scores = score(models[MODEL](tokens._replace(input_ids=corrupted), batch["positions"]).float())
        read, labels = tokens.segment_ids.flatten() > 0, (corrupted != tokens.input_ids).flatten()
        each = functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="none")
        suspected = (scores > 0) & read
        return {
            **softmax_losses(GENERATOR, guesses, targets, self.config.z_loss),
            "masked": (targets != IGNORED).sum(),
            DISCRIMINATOR: torch.where(read, each, 0.0).sum(),
            "read": read.sum(),
            "replaced": labels.sum(),
            "suspected": suspected.sum(),
            "found": (suspected & labels).sum(),
            "right": ((suspected == labels) & read).sum(),
        }

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        """Losses, and how well the discriminator does; `base_rate_entropy` is the loss of saying of each token how many
        of a hundred are replaced."""
        number = {name: float(value) for name, value in sums.items()}
        parts = {
            "generator_loss": number[GENERATOR] / number["masked"],
            "discriminator_loss": number[DISCRIMINATOR] / number["read"],
        }
        config, share_replaced = self.config, number["replaced"] / number["read"]
        weights = config.generator_weight, config.discriminator_weight
        return {
            "loss": sum(weight * loss for weight, loss in zip(weights, parts.values(), strict=True)),
            **parts,
            "accuracy": number["right"] / number["read"],
            "precision": number["found"] / max(number["suspected"], 1),
            "recall": number["found"] / max(number["replaced"], 1),
            "replaced": share_replaced,
            "base_rate_entropy": entropy(share_replaced),
            **text.baselines,
        }

    def baselines(self, corpus: PreparedCorpus) -> dict[str, float]:
        """The generator's loss where it guesses by frequency."""
        return {"unigram_entropy": unigram_entropy(corpus, self.tokenizer.special_ids)}

    def judge(self, corpus: PreparedCorpus, validation: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        """A discriminator that knows no more than how many tokens are replaced is a warning."""
        return {}, warnings(validation["discriminator_loss"], validation["base_rate_entropy"])

    def flops_per_token(self, models: Models, length: int) -> float:
        """Those of both models; the generator's head runs at masked positions, the discriminator's at all."""
        generator = flops_per_token(models[GENERATOR], length, self.config.masking.mlm_probability_at(0.5))
        return generator + flops_per_token(models[MODEL], length, 1.0)

    def card_facts(self, validation: Mapping[str, float]) -> dict[str, str]:
        """Losses, precision and recall."""
        return {
            "validation loss of the discriminator": f"{validation['discriminator_loss']:.4f} nats per token; "
            f"{validation['base_rate_entropy']:.4f} without reading",
            "replaced tokens": f"{validation['replaced']:.2%} of all; precision {validation['precision']:.4f}, "
            f"recall {validation['recall']:.4f}",
            "validation loss of the generator": f"{validation['generator_loss']:.4f} nats per masked token",
        }


def sampled(logits: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    """Entries (N,) drawn from softmax(logits / temperature), (N, V), each by one number (N,) in [0, 1): where that
    falls in the sums of the probabilities. The host is not waited for."""
    sums = (logits.float() / temperature).softmax(dim=-1).cumsum(dim=-1)
    places = torch.searchsorted(sums, uniforms.unsqueeze(-1) * sums[:, -1:], right=True)
    return places.squeeze(-1).clamp(max=logits.shape[-1] - 1)  # a GPU's sums need not rise, in the last bit


def replaced(input_ids: Tensor, masked: Tensor, targets: Tensor, drawn: Tensor) -> Tensor:
    """The text (B, S) with the entries that were `drawn` in place of hidden ones, all of them (N,); slots whose target
    is `IGNORED` change nothing."""
    flat = input_ids.flatten()
    return flat.scatter(0, masked, torch.where(targets == IGNORED, flat[masked], drawn)).view_as(input_ids)


def score(logits: Tensor) -> Tensor:
    """Log odds (N,) that a token was replaced, from the logits of a head: (N, 1), or (N, 2) for the `LABELS`."""
    return logits[:, 0] if logits.shape[-1] == 1 else logits[:, 1] - logits[:, 0]


def warnings(loss: float, base_rate_entropy: float) -> list[str]:
    """A discriminator's loss that is hardly below what the base rate gives; both in nats per token."""
    if is_learnt(loss, base_rate_entropy):
        return []
    return [
        f"the discriminator's loss is {loss:.4f}, and {base_rate_entropy:.4f} is reached by saying the same of each "
        f"token: it has learnt next to nothing, and a model that starts from here may be worse than one from scratch; "
        f"{CORPUS_ADVICE}"
    ]
