"""ALBERT encoder, heads, and parameter names in Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from typing_extensions import override

from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.base import Encoder
from domainbert.encoders.family import LABEL_HEADS, Family
from domainbert.encoders.heads import build_head

_LAYER = {
    "attention.query_key_value": ("attention.query", "attention.key", "attention.value"),
    "attention.output": ("attention.dense",),
    "attention_norm": ("attention.LayerNorm",),
    "feed_forward.expand": ("ffn",),
    "feed_forward.contract": ("ffn_output",),
    "feed_forward_norm": ("full_layer_layer_norm",),
}
_MASKED_LM = {"head.dense": "predictions.dense", "head.norm": "predictions.LayerNorm"}
_HEADS = {
    **LABEL_HEADS,
    "masked_lm": _MASKED_LM,
    "pretraining": {**_MASKED_LM, "head.pooler": "albert.pooler", "head.classifier": "sop_classifier.classifier"},
    "sequence": {"head.pooler": "albert.pooler", "head.classifier": "classifier"},
}


class AlbertFamily(Family[AlbertConfig]):
    """ALBERT (Lan et al. 2020): BERT with shared layers and narrow embeddings.

    Dropout follows attention and feed-forward, as in the authors' code (google-research/albert, modeling.py,
    `attention_ffn_block`); transformers has no dropout after the feed-forward part.
    """

    prefix = "albert."
    projection = "encoder.embedding_hidden_mapping_in"
    layer = _LAYER
    heads = _HEADS
    output_bias = "predictions.bias"
    output_copies = ("predictions.decoder.weight", "predictions.decoder.bias")

    @override
    def head(self, kind: str, config: AlbertConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        rate = config.classifier_dropout_prob
        return build_head(kind, encoder, config.sizes, num_labels, dropout=rate, pair_dropout=rate)

    @override
    def layer_names(self, config: AlbertConfig) -> Sequence[str]:
        """Return the Hugging Face names of the distinct layers; each group has `inner_group_num` layers."""
        inner = config.inner_group_num
        indices = [divmod(index, inner) for index in sorted(set(config.layer_weights))]
        return [f"albert.encoder.albert_layer_groups.{group}.albert_layers.{layer}" for group, layer in indices]


FAMILY = AlbertFamily()
