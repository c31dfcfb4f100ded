"""The encoder of BERT and of those built like it (Devlin et al. 2019, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from domainbert.encoders.attention import Segments, choose_kernel
from domainbert.encoders.base import Encoder
from domainbert.encoders.config import Sizes
from domainbert.encoders.embeddings import Embeddings
from domainbert.encoders.layers import FeedForward, PostNormLayer, SelfAttention, initialise
from domainbert.encoders.packed import Packed


class PostNormEncoder(Encoder):
    """Embeddings and a stack of post-norm layers.

    Args:
        embeddings: as they are built.
        sizes: of the layers.
        pad_id: of the vocabulary.
        num_token_types: how many it tells apart, 0 for none.
    """

    def __init__(self, embeddings: Embeddings, sizes: Sizes, pad_id: int, num_token_types: int = 0) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = nn.ModuleList(_layer(sizes) for _ in range(sizes.num_layers))
        self.hidden_size, self.num_heads = sizes.hidden_size, sizes.num_heads
        self.num_token_types = num_token_types
        self.attention_dropout = sizes.attention_dropout
        initialise(self, sizes.initializer_range)
        embeddings.zero_padding(pad_id)

    def embed(self, tokens: Packed) -> Tensor:
        """See `Encoder.embed`."""
        embedded: Tensor = self.embeddings(tokens if self.num_token_types else tokens._replace(token_type_ids=None))
        return embedded

    def context(self, tokens: Packed) -> Segments:
        """See `Encoder.context`."""
        rate = self.attention_dropout if self.training else 0.0
        return choose_kernel(tokens, self.hidden_size // self.num_heads, rate)

    def blocks(self) -> Sequence[nn.Module]:
        """See `Encoder.blocks`."""
        return list(self.layers)

    @property
    def input_embeddings(self) -> nn.Embedding:
        """See `Encoder.input_embeddings`."""
        return self.embeddings.word


def _layer(sizes: Sizes) -> PostNormLayer:
    return PostNormLayer(
        SelfAttention(sizes.hidden_size, sizes.num_heads, sizes.attention_dropout),
        FeedForward(sizes.hidden_size, sizes.intermediate_size, sizes.activation),
        sizes.hidden_size,
        sizes.layer_norm_eps,
        sizes.dropout,
    )
