"""Encoder of BERT and of families with the same architecture (Devlin et al. 2019, section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from typing_extensions import override

from domainbert.encoders.base import Encoder
from domainbert.encoders.config import Sizes
from domainbert.encoders.layers import Dropout, FeedForward, PostNormLayer, SelfAttention, initialise
from domainbert.encoders.packed import Packed


class Embeddings(nn.Module):
    """Sum of word, position and token-type embeddings, normalised; no types if `num_types` is 0.

    `first_position` is the row of the position table for the first token of a text. `factor_width` is the width of
    factorised embeddings, which a linear layer projects to the hidden states (Lan et al. 2020, ALBERT, section 3.1).
    """

    def __init__(
        self,
        vocab_size: int,
        num_positions: int,
        num_types: int,
        sizes: Sizes,
        first_position: int = 0,
        factor_width: int | None = None,
    ) -> None:
        super().__init__()
        width = sizes.hidden_size if factor_width is None else factor_width
        self.first_position = first_position
        self.word = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(num_positions, width)
        self.token_type = nn.Embedding(num_types, width) if num_types else None
        self.norm = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.dropout = Dropout(sizes.dropout)
        self.project = None if factor_width is None else nn.Linear(width, sizes.hidden_size)

    def forward(self, tokens: Packed) -> Tensor:
        """Return the input of the first layer: (B, S) -> (B, S, H); without token types every token has type 0."""
        types = tokens.token_type_ids
        positions = tokens.position_ids + self.first_position if self.first_position else tokens.position_ids
        summed = self.word(tokens.input_ids) + self.position(positions)
        if self.token_type is not None:
            summed = summed + (self.token_type.weight[0] if types is None else self.token_type(types))
        embedded = self.dropout(self.norm(summed))
        # in the precision of its input; under autocast the sums of the layers would otherwise have 16 bits
        return embedded if self.project is None else self.project(embedded).to(embedded.dtype)

    def parts(self) -> dict[str, nn.Module]:
        """Return the modules by name, without modules that are None."""
        modules = {"word": self.word, "position": self.position, "token_type": self.token_type, "norm": self.norm}
        return {name: module for name, module in modules.items() if module is not None}

    def zero_padding(self, pad_id: int) -> None:
        """Set the rows of the padding to 0, as transformers does, in the table of positions too if it has one."""
        with torch.no_grad():
            self.word.weight[pad_id].zero_()
            if self.first_position:
                self.position.weight[self.first_position - 1].zero_()


class StackedEncoder(Encoder):
    """Embeddings and a stack of layers; it ignores token types if `num_token_types` is 0.

    Each layer has one `layers.Attention` and is called as described in `Encoder.blocks`.
    """

    def __init__(
        self, embeddings: Embeddings, layers: Iterable[nn.Module], sizes: Sizes, pad_id: int, num_token_types: int = 0
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layers)
        self.hidden_size, self.num_heads = sizes.hidden_size, sizes.num_heads
        self.num_token_types = num_token_types
        self.attention_dropout = sizes.attention_dropout
        initialise(self, sizes.initializer_range)
        embeddings.zero_padding(pad_id)

    @override
    def embed(self, tokens: Packed) -> Tensor:
        embedded: Tensor = self.embeddings(tokens)
        return embedded

    @override
    def embedding_parts(self) -> Mapping[str, nn.Module]:
        return self.embeddings.parts()

    @override
    def embedding_modules(self) -> Sequence[nn.Module]:
        return [self.embeddings]

    @override
    def blocks(self) -> Sequence[nn.Module]:
        return list(self.layers)

    @property
    @override
    def input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word


class PostNormEncoder(StackedEncoder):
    """Embeddings and a stack of post-norm layers; it ignores token types if `num_token_types` is 0."""

    def __init__(self, embeddings: Embeddings, sizes: Sizes, pad_id: int, num_token_types: int = 0) -> None:
        layers = [_layer(sizes) for _ in range(sizes.num_layers)]
        super().__init__(embeddings, layers, sizes, pad_id, num_token_types)


def _layer(sizes: Sizes) -> PostNormLayer:
    return PostNormLayer(
        SelfAttention(sizes.hidden_size, sizes.num_heads, sizes.attention_dropout),
        FeedForward(sizes.hidden_size, sizes.intermediate_size, sizes.activation),
        sizes.hidden_size,
        sizes.layer_norm_eps,
        sizes.dropout,
    )
