"""The DistilBERT encoder, its heads, and its names in Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from domainbert.encoders.base import Encoder
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.distilbert.config import DistilBertConfig
from domainbert.encoders.embeddings import Embeddings
from domainbert.encoders.family import Family
from domainbert.encoders.heads import MaskedLMHead, SequenceHead, TokenHead
from domainbert.encoders.layers import initialise
from domainbert.encoders.names import NameMap, numbered, with_weight_and_bias
from domainbert.encoders.post_norm import PostNormEncoder

_LAYER = {
    "attention.query_key_value": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.output": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "feed_forward.expand": ("ffn.lin1",),
    "feed_forward.contract": ("ffn.lin2",),
    "feed_forward_norm": ("output_layer_norm",),
}
_HEADS: dict[str | None, dict[str, str]] = {
    None: {},
    "masked_lm": {"head.dense": "vocab_transform", "head.norm": "vocab_layer_norm"},
    "tokens": {"head.classifier": "classifier"},
    "sequence": {"head.pooler": "pre_classifier", "head.classifier": "classifier"},
}


class DistilBertFamily(Family[DistilBertConfig]):
    """DistilBERT (Sanh et al. 2019): BERT's layers on embeddings without token types."""

    prefix = "distilbert."

    def encoder(self, config: DistilBertConfig, vocabulary: VocabularyFacts) -> Encoder:
        """See `Family.encoder`."""
        sizes = config.sizes
        embeddings = Embeddings(
            vocabulary.size, sizes.max_length, 0, sizes.hidden_size, sizes.layer_norm_eps, sizes.dropout
        )
        return PostNormEncoder(embeddings, sizes, vocabulary.pad_id)

    def head(self, kind: str, config: DistilBertConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        """See `Family.head`."""
        head: nn.Module
        if kind == "masked_lm":
            head = MaskedLMHead(encoder.input_embeddings, config.dim, config.activation, config.sizes.layer_norm_eps)
        elif kind == "tokens":
            head = TokenHead(config.dim, num_labels, config.dropout)
        else:
            head = SequenceHead(config.dim, num_labels, config.seq_classif_dropout, "relu")
        initialise(head, config.initializer_range)
        return head

    def names(self, config: DistilBertConfig, kind: str | None) -> NameMap:
        """See `Family.names`."""
        tables: NameMap = {
            f"encoder.embeddings.{part}.weight": (f"distilbert.embeddings.{part}_embeddings.weight",)
            for part in ("word", "position")
        }
        layers = numbered(config.n_layers, "encoder.layers", "distilbert.transformer.layer", _LAYER)
        norm = {"encoder.embeddings.norm": "distilbert.embeddings.LayerNorm"}
        names = tables | with_weight_and_bias({**norm, **layers, **_HEADS[kind]})
        return names | {"head.bias": ("vocab_projector.bias",)} if kind == "masked_lm" else names

    def tied(self, config: DistilBertConfig) -> Mapping[str, str]:
        """See `Family.tied`."""
        return {"vocab_projector.weight": self.per_entry(config)[0]}

    def per_entry(self, config: DistilBertConfig) -> Sequence[str]:
        """See `Family.per_entry`."""
        return "distilbert.embeddings.word_embeddings.weight", "vocab_projector.bias"


FAMILY = DistilBertFamily()
