"""ELECTRA encoder, heads, and parameter names in Hugging Face checkpoints."""

from __future__ import annotations

from typing import Any

from torch import nn
from typing_extensions import override

from domainbert.encoders.base import Encoder
from domainbert.encoders.electra.config import ElectraConfig
from domainbert.encoders.family import LABEL_HEADS, Family
from domainbert.encoders.heads import build_head

_HEADS = {
    **LABEL_HEADS,
    "masked_lm": {"head.dense": "generator_predictions.dense", "head.norm": "generator_predictions.LayerNorm"},
    "replaced": {
        "head.dense": "discriminator_predictions.dense",
        "head.classifier": "discriminator_predictions.dense_prediction",
    },
    "sequence": {"head.pooler": "classifier.dense", "head.classifier": "classifier.out_proj"},
}


class ElectraFamily(Family[ElectraConfig]):
    """ELECTRA (Clark et al. 2020): BERT's layers on embeddings that may be narrower."""

    prefix = "electra."
    projection = "embeddings_project"
    heads = _HEADS
    output_bias = "generator_lm_head.bias"
    output_copies = ("generator_lm_head.weight",)

    @override
    def head(self, kind: str, config: ElectraConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        """Return a newly initialised head; the masked-LM head and the pooler always use the exact GELU."""
        rate = config.head_dropout
        activations: dict[str, Any] = {"activation": "gelu", "pooler": "gelu"}
        return build_head(kind, encoder, config.sizes, num_labels, dropout=rate, pooler_dropout=rate, **activations)


FAMILY = ElectraFamily()
