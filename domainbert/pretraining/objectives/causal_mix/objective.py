"""Masked LM mixed with causal LM: in some of the steps the next token is predicted from those before it.

Charpentier and Samuel 2024 (GPT-BERT, arXiv:2410.24159), section 2, but for where masked LM predicts: there a hidden
token is predicted at the one before it, as the next one is; here in its own place, as whoever fills in masks expects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from domainbert.data.packing import Ints, RowPlan
from domainbert.data.types import IGNORED, Batch
from domainbert.pretraining.objective import Built, CorpusRows, Key, Models, Term
from domainbert.pretraining.objectives.masked_lm.objective import MASKED, MaskedLMObjective
from domainbert.pretraining.start import Start
from domainbert.tokenization.load import DomainTokenizer
from domainbert.training.throughput import flops_per_token

if TYPE_CHECKING:
    from domainbert.pretraining.objectives.causal_mix.config import CausalMix

CAUSAL = "causal_lm"  # the loss of next tokens among the terms


class CausalMixObjective(MaskedLMObjective):
    """Masked LM and causal LM of one model with one head, in turn: a step is all of one or all of the other.

    So attention is one call, shapes are two, and each loss is the mean over its own targets. Validation is masked LM.
    """

    config: CausalMix

    def __init__(self, config: CausalMix, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer)
        self.terms = {CAUSAL: Term(), **self.terms}
        self.share = Fraction(str(config.causal_share))  # as it was written, so that no step is lost to rounding

    def is_causal(self, step: int) -> bool:
        """Whether an optimiser step, from 0, learns causal LM: ceil(share * n) of the first n do, evenly spread."""
        return math.ceil(self.share * (step + 1)) > math.ceil(self.share * step)

    def heaviest_step(self, steps: range) -> int:
        """See `Objective.heaviest_step`: a causal one, which has logits for all tokens, if there is one."""
        return next(filter(self.is_causal, steps), super().heaviest_step(steps))

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """See `MaskedLMObjective.corrupt`. In a causal step nothing is hidden: `positions` are all tokens (R * S,),
        `targets` the next ones of their texts, but for special ones, which masked LM never asks for either."""
        if not self.is_causal(key.step):
            return super().corrupt(rows, key)
        ids = rows.packed.input_ids
        targets = next_tokens(ids, rows.packed.segment_ids, self.masker.special_ids)
        return {"input_ids": ids, "causal": True, "positions": np.arange(ids.size), "targets": targets.ravel()}

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """See `MaskedLMObjective.notes`; in a causal step the next token."""
        if "causal" not in batch:
            return super().notes(rows, batch)
        tokens, pieces = self.tokenizer.tokens, self.tokenizer.pieces
        said = ["" if one == IGNORED else f"the next is {pieces.shown(tokens[one])}" for one in batch["targets"]]
        length = rows.packed.input_ids.shape[1]
        return [said[start : start + length] for start in range(0, len(said), length)]

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """`num_targets`: masked tokens; in a causal step all but the special ones, each of which has one before it."""
        if not self.is_causal(key.step):
            return super().counts(plan, key)
        return {"num_targets": max(int(plan.maskable_tokens[key.rows].sum()), 1)}

    def build(self, start: Start) -> dict[str, Built]:
        """See `MaskedLMObjective.build`; `DomainbertError` where the encoder cannot be causal."""
        self.config.check(start.config)
        return super().build(start)

    def losses(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `MaskedLMObjective.losses`; in a causal step the loss has another name."""
        found = super().losses(models, batch)
        return {CAUSAL: found.pop(MASKED), **found} if "causal" in batch else found

    def flops_per_token(self, models: Models, length: int) -> float:
        """The mean over the steps: in a causal one the head runs at all positions."""
        share = float(self.share)
        (model,) = models.values()
        return (1 - share) * super().flops_per_token(models, length) + share * flops_per_token(model, length, 1.0)


def next_tokens(input_ids: Ints, segment_ids: Ints, special_ids: frozenset[int]) -> Ints:
    """The token behind each one in its text, `IGNORED` where there is none or a special one: (R, S) each -> (R, S)."""
    following, its_text = np.roll(input_ids, -1, axis=1), np.roll(segment_ids, -1, axis=1)
    inside = its_text == segment_ids
    inside[:, -1] = False  # behind the last one of a row stands nothing
    return np.where(inside & ~np.isin(following, sorted(special_ids)), following, IGNORED)
