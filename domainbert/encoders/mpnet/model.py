"""The MPNet encoder, its heads, and its names in Hugging Face checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.encoders.attention import Segments, choose_kernel
from domainbert.encoders.base import Encoder
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.family import Family
from domainbert.encoders.heads import build_head
from domainbert.encoders.layers import initialise
from domainbert.encoders.mpnet.config import NUM_BUCKETS, PAD_ID, MPNetConfig
from domainbert.encoders.names import NameMap
from domainbert.encoders.packed import Packed
from domainbert.encoders.post_norm import Embeddings, PostNormEncoder

_LAYER = {
    "attention.query_key_value": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "attention.output": ("attention.attn.o",),
    "attention_norm": ("attention.LayerNorm",),
    "feed_forward.expand": ("intermediate.dense",),
    "feed_forward.contract": ("output.dense",),
    "feed_forward_norm": ("output.LayerNorm",),
}
_HEADS = {
    "masked_lm": {"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm"},
    "tokens": {"head.classifier": "classifier"},
    "sequence": {"head.pooler": "classifier.dense", "head.classifier": "classifier.out_proj"},
    "span": {"head.classifier": "qa_outputs"},
}
_EACH_WAY = NUM_BUCKETS // 2
_EXACT = _EACH_WAY // 2
_FARTHEST = 128  # from here on all distances would share a bucket, if the last one did not begin before
_FIRST_OF_BUCKET = [  # the smallest distance in each bucket but that of 0
    *range(1, _EXACT),
    *(math.ceil(_EXACT * (_FARTHEST / _EXACT) ** (n / (_EACH_WAY - _EXACT))) for n in range(_EACH_WAY - _EXACT)),
]


class MPNetEncoder(PostNormEncoder):
    """Layers whose attention scores are biased by how far apart two tokens stand, by one table for all layers."""

    def __init__(self, config: MPNetConfig, vocabulary: VocabularyFacts) -> None:
        sizes, first = config.sizes, config.position_offset
        embeddings = Embeddings(vocabulary.size, config.max_position_embeddings, 0, sizes, first)
        super().__init__(embeddings, sizes, vocabulary.pad_id)
        self.relative_bias = nn.Embedding(NUM_BUCKETS, sizes.num_heads)
        self.first_of_bucket = nn.Buffer(torch.tensor(_FIRST_OF_BUCKET), persistent=False)  # made once: a GPU waits
        initialise(self.relative_bias, sizes.initializer_range)

    @override
    def context(self, tokens: Packed) -> Segments:
        """Values that all layers share: the texts, and the bias of relative positions."""
        rate = self.attention_dropout if self.training else 0.0
        segments = choose_kernel(tokens, self.hidden_size // self.num_heads, rate, biased=True)
        places = torch.arange(tokens.input_ids.shape[1], device=tokens.input_ids.device)
        ahead = places - places.unsqueeze(-1)  # (S, S); a text stands in one piece, so places will do
        bias: Tensor = self.relative_bias(relative_buckets(ahead, self.first_of_bucket))
        return segments.with_bias(bias.permute(2, 0, 1).unsqueeze(0))


def relative_buckets(ahead: Tensor, first_of_bucket: Tensor) -> Tensor:
    """Numbers of the buckets of distances, of any shape: by how many tokens the one seen stands ahead of the other.

    Half of the buckets are for tokens behind and half for those ahead; small distances have one each, larger ones share
    buckets that grow with their logarithm (Raffel et al. 2020, T5, section 2.1).
    """
    return torch.bucketize(ahead.abs(), first_of_bucket, right=True) + _EACH_WAY * (ahead > 0)


class MPNetFamily(Family[MPNetConfig]):
    """MPNet (Song et al. 2020): BERT's layers without token types, with attention that is biased by distance."""

    prefix = "mpnet."
    unread = ("mpnet.pooler.dense.weight", "mpnet.pooler.dense.bias")
    tables = ("word", "position")
    layer = _LAYER
    heads = _HEADS
    output_bias = "lm_head.bias"
    output_copies = ("lm_head.decoder.weight", "lm_head.decoder.bias")

    @override
    def encoder(self, config: MPNetConfig, vocabulary: VocabularyFacts) -> Encoder:
        """As in the base class; `DomainbertError` if the padding has another id than 1."""
        _check_padding(vocabulary.pad_id)
        return MPNetEncoder(config, vocabulary)

    @override
    def head(self, kind: str, config: MPNetConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        """The masked-LM head has the exact GELU, whatever the layers have."""
        rate = config.hidden_dropout_prob
        return build_head(kind, encoder, config.sizes, num_labels, dropout=rate, activation="gelu", pooler_dropout=rate)

    @override
    def encoder_names(self, config: MPNetConfig) -> NameMap:
        table = {"encoder.relative_bias.weight": ("mpnet.encoder.relative_attention_bias.weight",)}
        return super().encoder_names(config) | table

    @override
    def with_padding(self, tensors: Mapping[str, Tensor], config: MPNetConfig, pad_id: int) -> dict[str, Tensor]:
        """As in the base class; `DomainbertError` if the padding has another id than 1."""
        _check_padding(pad_id)
        return dict(tensors)


def _check_padding(pad_id: int) -> None:
    if pad_id != PAD_ID:
        raise DomainbertError(
            f"padding has id {pad_id} in the vocabulary; expected {PAD_ID}, as vocabularies of kind roberta and "
            f"xlm-roberta have it: transformers counts the positions of {MPNetConfig.model_type} from that one, "
            "whatever config.json says"
        )


FAMILY = MPNetFamily()
