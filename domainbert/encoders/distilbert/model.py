"""DistilBERT encoder, heads, and parameter names in Hugging Face checkpoints."""

from __future__ import annotations

from torch import nn
from typing_extensions import override

from domainbert.encoders.base import Encoder
from domainbert.encoders.distilbert.config import DistilBertConfig
from domainbert.encoders.family import LABEL_HEADS, Family
from domainbert.encoders.heads import build_head

_LAYER = {
    "attention.query_key_value": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.output": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "feed_forward.expand": ("ffn.lin1",),
    "feed_forward.contract": ("ffn.lin2",),
    "feed_forward_norm": ("output_layer_norm",),
}
_HEADS = {
    **LABEL_HEADS,
    "masked_lm": {"head.dense": "vocab_transform", "head.norm": "vocab_layer_norm"},
    "sequence": {"head.pooler": "pre_classifier", "head.classifier": "classifier"},
}


class DistilBertFamily(Family[DistilBertConfig]):
    """DistilBERT (Sanh et al. 2019): BERT's layers on embeddings without token types."""

    prefix = "distilbert."
    tables = ("word", "position")
    layers = "transformer.layer"
    layer = _LAYER
    heads = _HEADS
    output_bias = "vocab_projector.bias"
    output_copies = ("vocab_projector.weight",)

    @override
    def head(self, kind: str, config: DistilBertConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        dropout = config.seq_classif_dropout if kind == "sequence" else config.dropout
        span = config.qa_dropout
        return build_head(kind, encoder, config.sizes, num_labels, dropout=dropout, pooler="relu", span_dropout=span)


FAMILY = DistilBertFamily()
