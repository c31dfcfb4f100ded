"""The BERT encoder, its heads, and its names in Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from domainbert.encoders.base import Encoder
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.embeddings import Embeddings
from domainbert.encoders.family import Family
from domainbert.encoders.heads import MaskedLMHead, SequenceHead, TokenHead
from domainbert.encoders.layers import initialise
from domainbert.encoders.names import NameMap, numbered, with_weight_and_bias
from domainbert.encoders.post_norm import PostNormEncoder

_LAYER = {
    "attention.query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward.expand": ("intermediate.dense",),
    "feed_forward.contract": ("output.dense",),
    "feed_forward_norm": ("output.LayerNorm",),
}
_HEADS: dict[str | None, dict[str, str]] = {
    None: {},
    "masked_lm": {
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
    },
    "tokens": {"head.classifier": "classifier"},
    "sequence": {"head.pooler": "bert.pooler.dense", "head.classifier": "classifier"},
}


class BertFamily(Family[BertConfig]):
    """BERT (Devlin et al. 2019)."""

    prefix = "bert."

    def encoder(self, config: BertConfig, vocabulary: VocabularyFacts) -> Encoder:
        """See `Family.encoder`."""
        sizes = config.sizes
        embeddings = Embeddings(
            vocabulary.size,
            config.max_position_embeddings,
            config.type_vocab_size,
            sizes.hidden_size,
            sizes.layer_norm_eps,
            sizes.dropout,
        )
        return PostNormEncoder(embeddings, sizes, vocabulary.pad_id, config.type_vocab_size)

    def head(self, kind: str, config: BertConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        """See `Family.head`."""
        width, dropout = config.hidden_size, config.hidden_dropout_prob
        head: nn.Module
        if kind == "masked_lm":
            head = MaskedLMHead(encoder.input_embeddings, width, config.hidden_act, config.layer_norm_eps)
        elif kind == "tokens":
            head = TokenHead(width, num_labels, dropout)
        else:
            head = SequenceHead(width, num_labels, dropout, "tanh")
        initialise(head, config.initializer_range)
        return head

    def names(self, config: BertConfig, kind: str | None) -> NameMap:
        """See `Family.names`."""
        names = encoder_names(self.prefix, config.num_hidden_layers) | with_weight_and_bias(_HEADS[kind])
        return names | {"head.bias": ("cls.predictions.bias",)} if kind == "masked_lm" else names

    def tied(self, config: BertConfig) -> Mapping[str, str]:
        """See `Family.tied`."""
        embeddings, bias = self.per_entry(config)
        return {"cls.predictions.decoder.weight": embeddings, "cls.predictions.decoder.bias": bias}

    def per_entry(self, config: BertConfig) -> Sequence[str]:
        """See `Family.per_entry`."""
        return "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"


def encoder_names(prefix: str, num_layers: int) -> NameMap:
    """The encoder's names, which families with BERT's layers share but for the prefix."""
    tables = {
        f"encoder.embeddings.{part}.weight": (f"{prefix}embeddings.{part}_embeddings.weight",)
        for part in ("word", "position", "token_type")
    }
    layers = numbered(num_layers, "encoder.layers", f"{prefix}encoder.layer", _LAYER)
    return tables | with_weight_and_bias({"encoder.embeddings.norm": f"{prefix}embeddings.LayerNorm", **layers})


FAMILY = BertFamily()
