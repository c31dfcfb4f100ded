"""MPNet encoder, heads, and parameter names in Hugging Face checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.encoders.base import Encoder, PostNormEncoder
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.family import BERT_LAYER, LABEL_HEADS, Family
from domainbert.encoders.heads import build_head
from domainbert.encoders.layers import Segments, choose_kernel, initialise
from domainbert.encoders.mpnet.config import NUM_BUCKETS, PAD_ID, MPNetConfig
from domainbert.encoders.names import NameMap
from domainbert.encoders.packed import Packed

_LAYER = {
    **BERT_LAYER,
    "attention.query_key_value": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "attention.output": ("attention.attn.o",),
    "attention_norm": ("attention.LayerNorm",),
}
_HEADS = {
    **LABEL_HEADS,
    "masked_lm": {"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm"},
    "sequence": {"head.pooler": "classifier.dense", "head.classifier": "classifier.out_proj"},
}
_PER_DIRECTION = NUM_BUCKETS // 2  # buckets of positive distances, and of the others
_EXACT = _PER_DIRECTION // 2  # buckets of a single distance
_LOGARITHMIC = _PER_DIRECTION - _EXACT  # buckets of several distances
_FARTHEST = 128  # end of the scale of the logarithmic buckets; the last bucket begins before it and is unlimited
_FIRST_OF_BUCKET = [  # smallest distance of each bucket, without bucket 0
    *range(1, _EXACT),
    *(math.ceil(_EXACT * (_FARTHEST / _EXACT) ** (n / _LOGARITHMIC)) for n in range(_LOGARITHMIC)),
]


class MPNetEncoder(PostNormEncoder):
    """Post-norm encoder with a relative position bias, which all layers share."""

    def __init__(self, config: MPNetConfig, vocabulary: VocabularyFacts) -> None:
        super().__init__(config, vocabulary)
        self.relative_bias = nn.Embedding(NUM_BUCKETS, config.num_attention_heads)
        self.first_of_bucket = nn.Buffer(torch.tensor(_FIRST_OF_BUCKET), persistent=False)  # copied to a GPU once
        initialise(self.relative_bias, config.initializer_range)

    @override
    def context(self, tokens: Packed) -> Segments:
        rate = self.attention_dropout if self.training else 0.0
        segments = choose_kernel(tokens, self.hidden_size // self.num_heads, rate, biased=True)
        columns = torch.arange(tokens.input_ids.shape[1], device=tokens.input_ids.device)
        distance = columns - columns.unsqueeze(-1)  # (S, S); texts are contiguous, so columns replace positions
        bias: Tensor = self.relative_bias(relative_buckets(distance, self.first_of_bucket))
        return segments.with_bias(bias.permute(2, 0, 1).unsqueeze(0))


def relative_buckets(distance: Tensor, first_of_bucket: Tensor) -> Tensor:
    """Return T5's relative position buckets of `distance` = key position - query position, of any shape.

    The upper half of the buckets is for positive distances. Small distances have a bucket each, larger ones share
    logarithmic buckets (Raffel et al. 2020, T5, section 2.1).
    """
    return torch.bucketize(distance.abs(), first_of_bucket, right=True) + _PER_DIRECTION * (distance > 0)


class MPNetFamily(Family[MPNetConfig]):
    """MPNet (Song et al. 2020): BERT without token types, with a relative position bias in attention."""

    prefix = "mpnet."
    ignored_tensors = ("mpnet.pooler.dense.weight", "mpnet.pooler.dense.bias")
    tables = ("word", "position")
    layer = _LAYER
    heads = _HEADS
    output_bias = "lm_head.bias"
    output_copies = ("lm_head.decoder.weight", "lm_head.decoder.bias")

    @override
    def encoder(self, config: MPNetConfig, vocabulary: VocabularyFacts) -> Encoder:
        """Return a newly initialised encoder. Raises `DomainbertError` if the padding has another id than 1."""
        _check_padding(vocabulary.pad_id)
        return MPNetEncoder(config, vocabulary)

    @override
    def head(self, kind: str, config: MPNetConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        """Return a newly initialised head; the masked-LM head always uses the exact GELU."""
        rate = config.head_dropout
        return build_head(kind, encoder, config.sizes, num_labels, dropout=rate, activation="gelu", pooler_dropout=rate)

    @override
    def encoder_names(self, config: MPNetConfig) -> NameMap:
        table = {"encoder.relative_bias.weight": ("mpnet.encoder.relative_attention_bias.weight",)}
        return super().encoder_names(config) | table

    @override
    def with_pad_id(self, tensors: Mapping[str, Tensor], config: MPNetConfig, pad_id: int) -> dict[str, Tensor]:
        """Return the tensors unchanged. Raises `DomainbertError` if the padding has another id than 1."""
        _check_padding(pad_id)
        return dict(tensors)


def _check_padding(pad_id: int) -> None:
    if pad_id != PAD_ID:
        raise DomainbertError(
            f"the tokenizer's padding has id {pad_id}",
            expected=f"{PAD_ID}, which {MPNetConfig.model_type} needs in transformers: use a tokenizer that "
            "vocab trained with kind: roberta or kind: xlm-roberta",
        )


FAMILY = MPNetFamily()
