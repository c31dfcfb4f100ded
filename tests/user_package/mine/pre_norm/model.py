"""The encoder, and the `FAMILY` that domainbert looks for in this module."""

from torch import Tensor, nn

from domainbert.encoders.base import Embeddings, StackedEncoder
from domainbert.encoders.config import Sizes, VocabularyFacts
from domainbert.encoders.family import NativeFamily
from domainbert.encoders.layers import Dropout, FeedForward, Segments, SelfAttention
from domainbert.encoders.packed import Packed, select
from mine.pre_norm.config import PreNormConfig


class PreNormLayer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.attention = SelfAttention(sizes.hidden_size, sizes.num_heads, sizes.attention_dropout)
        self.feed_forward_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.feed_forward = FeedForward(sizes.hidden_size, sizes.intermediate_size, sizes.activation)
        self.dropout = Dropout(sizes.dropout)

    def forward(self, hidden: Tensor, segments: Segments, positions: Tensor | None = None) -> Tensor:
        attended = self.attention(self.attention_norm(hidden), segments, positions)
        hidden = select(hidden, positions) + self.dropout(attended)
        return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))


class PreNormEncoder(StackedEncoder):
    def __init__(self, config: PreNormConfig, vocabulary: VocabularyFacts) -> None:
        sizes = config.sizes
        embeddings = Embeddings(vocabulary.size, sizes.max_length, 0, sizes)
        layers = [PreNormLayer(sizes) for _ in range(sizes.num_layers)]
        super().__init__(embeddings, layers, sizes, vocabulary.pad_id)
        self.last_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)

    def finish(self, hidden: Tensor, tokens: Packed) -> Tensor:
        return self.last_norm(hidden)


FAMILY = NativeFamily(PreNormEncoder)
