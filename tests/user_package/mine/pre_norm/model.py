"""The pre-norm encoder, its heads, and the names of its tensors. `FAMILY` is what domainbert looks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.encoders.attention import Segments
from domainbert.encoders.base import Encoder
from domainbert.encoders.config import Sizes, VocabularyFacts
from domainbert.encoders.family import Family
from domainbert.encoders.heads import build_head
from domainbert.encoders.layers import Dropout, SelfAttention, initialise
from domainbert.encoders.names import NameMap
from domainbert.encoders.packed import Packed, select
from mine.pre_norm.config import LAYER_NORM_EPS, PreNormConfig

_LAYER = (
    *(f"{norm}.{kind}" for norm in ("before_attention", "before_gated") for kind in ("weight", "bias")),
    *(f"attention.{part}.{kind}" for part in ("query_key_value", "output") for kind in ("weight", "bias")),
    *("gate.weight", "expand.weight", "contract.weight"),
)
_HEADS: dict[str | None, tuple[str, ...]] = {
    None: (),
    "masked_lm": ("dense.weight", "dense.bias", "norm.weight", "norm.bias", "bias"),
    "tokens": ("classifier.weight", "classifier.bias"),
    "sequence": ("pooler.weight", "pooler.bias", "classifier.weight", "classifier.bias"),
}


class PreNormLayer(nn.Module):
    """A layer that normalises what goes into attention and into the gated layer, and not what comes out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.before_attention = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.attention = SelfAttention(width, sizes.num_heads, sizes.attention_dropout)
        self.before_gated = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.gate = nn.Linear(width, sizes.intermediate_size, bias=False)
        self.expand = nn.Linear(width, sizes.intermediate_size, bias=False)
        self.contract = nn.Linear(sizes.intermediate_size, width, bias=False)
        self.dropout = Dropout(sizes.dropout)

    def forward(self, hidden: Tensor, segments: Segments, positions: Tensor | None = None) -> Tensor:
        """(B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        mixed = self.attention(self.before_attention(hidden), segments, positions)
        hidden = select(hidden, positions) + self.dropout(mixed, positions)
        normed = self.before_gated(hidden)
        return hidden + self.dropout(self.contract(functional.silu(self.gate(normed)) * self.expand(normed)), positions)


class PreNormEncoder(Encoder):
    """Word embeddings with sines of the positions, pre-norm layers, and a last norm."""

    def __init__(self, config: PreNormConfig, vocabulary: VocabularyFacts) -> None:
        super().__init__()
        self.hidden_size, self.num_heads = config.width, config.heads
        self.attention_dropout = config.dropout
        self.words = nn.Embedding(vocabulary.size, config.width)
        self.dropout = Dropout(config.dropout)
        self.stack = nn.ModuleList(PreNormLayer(config.sizes) for _ in range(config.depth))
        self.last_norm = nn.LayerNorm(config.width, eps=LAYER_NORM_EPS)
        initialise(self, config.deviation)
        with torch.no_grad():
            self.words.weight[vocabulary.pad_id].zero_()

    @property
    def input_embeddings(self) -> nn.Embedding:
        """See `Encoder.input_embeddings`."""
        return self.words

    def embed(self, tokens: Packed) -> Tensor:
        """See `Encoder.embed`."""
        words: Tensor = self.words(tokens.input_ids) * self.hidden_size**0.5
        return self.dropout(words + sines(tokens.position_ids, self.hidden_size))

    def blocks(self) -> Sequence[nn.Module]:
        """See `Encoder.blocks`."""
        return list(self.stack)

    def finish(self, hidden: Tensor, tokens: Packed) -> Tensor:
        """See `Encoder.finish`."""
        return self.last_norm(hidden)


def sines(places: Tensor, width: int) -> Tensor:
    """Sines and cosines of positions (Vaswani et al. 2017, section 3.5), at rates from 1 to 1 / 10,000 a token.

    (B, S) -> (B, S, width).
    """
    rates = 10_000.0 ** -torch.linspace(0, 1, width // 2, device=places.device)
    angles = places.unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class PreNormFamily(Family[PreNormConfig]):
    """The tensors in `model.safetensors` are called as the parameters here, with "pre_norm." for the encoder."""

    prefix = "pre_norm."

    def encoder(self, config: PreNormConfig, vocabulary: VocabularyFacts) -> Encoder:
        """See `Family.encoder`."""
        return PreNormEncoder(config, vocabulary)

    def head(self, kind: str, config: PreNormConfig, encoder: Encoder, num_labels: int) -> nn.Module:
        """See `Family.head`."""
        return build_head(kind, encoder, config.sizes, num_labels, dropout=config.dropout, pooler="silu")

    def names(self, config: PreNormConfig, kind: str | None) -> NameMap:
        """See `Family.names`."""
        layers = (f"stack.{number}.{part}" for number in range(config.depth) for part in _LAYER)
        own = ("words.weight", "last_norm.weight", "last_norm.bias", *layers)
        encoder: NameMap = {f"encoder.{name}": (f"pre_norm.{name}",) for name in own}
        return encoder | {f"head.{name}": (f"head.{name}",) for name in _HEADS[kind]}

    def tied(self, config: PreNormConfig) -> Mapping[str, str]:
        """See `Family.tied`: the output weights of masked LM are the word embeddings, and have no name of their own."""
        return {}

    def per_entry(self, config: PreNormConfig) -> Sequence[str]:
        """See `Family.per_entry`."""
        return "pre_norm.words.weight", "head.bias"


FAMILY = PreNormFamily()
