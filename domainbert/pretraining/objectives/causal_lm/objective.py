"""Causal LM: predicts each token from the tokens before it (Radford et al. 2018, section 3.1)."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from domainbert.data.packing import IGNORE_INDEX, Batch, Ints, RowPlan
from domainbert.data.splits import PreparedCorpus
from domainbert.pretraining.objective import BuiltModel, CorpusRows, InitialModels, Key
from domainbert.pretraining.objectives.causal_lm.config import CausalLM
from domainbert.pretraining.token_prediction import TokenPrediction


class CausalLMObjective(TokenPrediction[CausalLM]):
    """Causal LM of one model, with causal attention and the head of masked LM."""

    loss_name = "causal_lm"
    summary = "A language model pretrained with domainbert, the phase before masked LM."

    def build(self, start: InitialModels) -> dict[str, BuiltModel]:
        """Return the model, whose attention is causal in this training."""
        self.config.check(start.config)
        models = super().build(start)
        for built in models.values():
            built.model.encoder.causal = True
        return models

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        """Return the rows unchanged as `input_ids` (R, S), the `positions` of all tokens and the token after each as
        `targets`, (R * S,) both."""
        input_ids = rows.packed.input_ids
        targets = next_tokens(input_ids, rows.packed.segment_ids, self.tokenizer.special_ids)
        return {"input_ids": input_ids, "positions": np.arange(input_ids.size), "targets": targets.ravel()}

    def notes(self, rows: CorpusRows, batch: Batch) -> list[list[str]]:
        """Return a note for each token after which another one is predicted: the target."""
        tokens, readable = self.tokenizer.tokens, self.tokenizer.pieces.readable
        targets: list[int] = batch["targets"].tolist()
        notes = ["" if target == IGNORE_INDEX else f"the next is {readable(tokens[target])}" for target in targets]
        length = rows.packed.input_ids.shape[1]
        return [notes[start : start + length] for start in range(0, len(notes), length)]

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        """Return `num_targets`: number of ordinary tokens, each of which has a token before it; at least 1."""
        return {"num_targets": max(int(plan.maskable_tokens[key.rows].sum()), 1)}

    @override
    def loss_without_context(self, corpus: PreparedCorpus) -> float:
        return self.baselines(corpus)["unigram_entropy"]


def next_tokens(input_ids: Ints, segment_ids: Ints, special_ids: frozenset[int]) -> Ints:
    """Return the token after each token of a text: (R, S) each -> (R, S).

    It is `IGNORE_INDEX` at the end of a text, in padding, and where the next token is special: masked LM does not
    predict special tokens either.
    """
    following, following_segments = np.roll(input_ids, -1, axis=1), np.roll(segment_ids, -1, axis=1)
    in_text = (following_segments == segment_ids) & (segment_ids > 0)
    in_text[:, -1] = False  # `roll` wraps around
    return np.where(in_text & ~np.isin(following, sorted(special_ids)), following, IGNORE_INDEX)
