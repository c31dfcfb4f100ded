"""RoBERTa encoder, heads, and parameter names in Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.encoders.base import Encoder
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.family import LABEL_HEADS, Family
from domainbert.encoders.heads import build_head
from domainbert.encoders.roberta.config import RobertaConfig

_HEADS = {
    **LABEL_HEADS,
    "masked_lm": {"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm"},
    "sequence": {"head.pooler": "classifier.dense", "head.classifier": "classifier.out_proj"},
}


class RobertaFamily(Family[RobertaConfig]):
    """RoBERTa (Liu et al. 2019): BERT without token types, with positions from the padding's id on."""

    prefix = "roberta."
    ignored_tensors = ("roberta.pooler.dense.weight", "roberta.pooler.dense.bias")
    heads = _HEADS
    output_bias = "lm_head.bias"
    output_copies = ("lm_head.decoder.weight", "lm_head.decoder.bias")

    @override
    def encoder(self, config: RobertaConfig, vocabulary: VocabularyFacts) -> Encoder:
        """Return a newly initialised encoder. Raises `DomainbertError` if too few positions follow the padding's id."""
        first, rows = vocabulary.pad_id + 1, config.max_position_embeddings
        if rows - first < config.max_length:
            raise DomainbertError(
                f"the tokenizer's padding has id {vocabulary.pad_id}",
                expected=f"an id of at most {config.pad_token_id}: a {config.model_type} encoder counts "
                "positions from this id on, and the last ones would be missing",
            )
        return super().encoder(config, vocabulary)

    @override
    def head(self, kind: str, config: RobertaConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        """Return a newly initialised head; the masked-LM head always uses the exact GELU."""
        rate = config.head_dropout
        return build_head(kind, encoder, config.sizes, num_labels, dropout=rate, activation="gelu", pooler_dropout=rate)

    @override
    def with_pad_id(self, tensors: Mapping[str, Tensor], config: RobertaConfig, pad_id: int) -> dict[str, Tensor]:
        """Return the tensors with the position table shifted to another padding id.

        Rows added at the end are copies of the last one. Raises `DomainbertError` if positions would be lost.
        """
        shift = config.pad_token_id - pad_id
        if shift < 0:
            raise DomainbertError(
                f"the new tokenizer's padding has id {pad_id}",
                expected=f"an id of at most {config.pad_token_id}, as in the model: with a higher id, the model "
                "would lose its last positions",
            )
        name = f"{self.prefix}embeddings.position_embeddings.weight"
        table = tensors[name]  # (positions, H)
        return {**tensors, name: torch.cat([table[shift:], table[-1:].expand(shift, -1)])}


FAMILY = RobertaFamily()
