"""Batches, losses and metrics of the objective."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor, tensor
from torch.nn import functional

from domainbert.data.packing import Batch, RowPlan
from domainbert.encoders.packed import Packed
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.masking import Masker
from domainbert.pretraining.objective import MODEL, CorpusRows, Key, Models, Objective, ValidationText
from domainbert.tokenization.load import DomainTokenizer
from mine.random_tokens.config import RandomTokens


class RandomTokensObjective(Objective[RandomTokens]):
    head, labels = "tokens", ("original", "replaced")
    measured = ("loss", "num_targets", "num_right")

    def __init__(self, config: RandomTokens, tokenizer: DomainTokenizer) -> None:
        super().__init__(config, tokenizer)
        masking = MaskingConfig(config.rate, mask_share=0.0, random_share=1.0)
        self.masker = Masker(masking, tokenizer.mask_id, tokenizer.vocab_size, tokenizer.special_ids)

    def for_validation(self) -> "RandomTokensObjective":
        return RandomTokensObjective(RandomTokens(), self.tokenizer)

    def corrupt(self, rows: CorpusRows, key: Key) -> Batch:
        original = rows.packed.input_ids
        replaced = self.masker.mask(original, rows.starts_word, key).input_ids
        positions = np.flatnonzero(~np.isin(original, list(self.tokenizer.special_ids)))
        targets = (replaced != original).ravel()[positions].astype(np.int64)
        return {"input_ids": replaced, "positions": positions, "targets": targets}

    def counts(self, plan: RowPlan, key: Key) -> dict[str, int]:
        return {"num_targets": int(plan.maskable_tokens[key.rows].sum())}

    def measure(self, models: Models, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        logits, targets = models[MODEL](Packed.of(batch), batch["positions"]).float(), batch["targets"]
        return {
            "loss": functional.cross_entropy(logits, targets, reduction="sum"),
            "num_targets": tensor(len(targets)),
            "num_right": (logits.argmax(dim=-1) == targets).sum(),
        }

    def report(self, sums: Mapping[str, Tensor], text: ValidationText) -> dict[str, float]:
        return {**super().report(sums, text), "accuracy": float(sums["num_right"] / sums["num_targets"])}
