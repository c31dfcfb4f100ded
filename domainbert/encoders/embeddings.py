"""Word embeddings with a table of positions: what goes into the first layer of BERT and of those built like it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from domainbert.encoders.layers import Dropout
from domainbert.encoders.packed import Packed


class Embeddings(nn.Module):
    """Word, position and token-type embeddings, summed and normalised.

    Args:
        vocab_size: rows of the word embeddings.
        num_positions: rows of the position embeddings.
        num_types: rows of the token-type embeddings; 0 for none.
        width: of all of them.
        layer_norm_eps: of the norm.
        dropout: behind the norm.
        first_position: row of the position of a text's first token.
    """

    def __init__(
        self,
        vocab_size: int,
        num_positions: int,
        num_types: int,
        width: int,
        layer_norm_eps: float,
        dropout: float,
        first_position: int = 0,
    ) -> None:
        super().__init__()
        self.first_position = first_position
        self.word = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(num_positions, width)
        self.token_type = nn.Embedding(num_types, width) if num_types else None
        self.norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Packed) -> Tensor:
        """(B, S) -> (B, S, width); without token types every token is of type 0."""
        types = tokens.token_type_ids
        places = tokens.position_ids + self.first_position if self.first_position else tokens.position_ids
        summed = self.word(tokens.input_ids) + self.position(places)
        if self.token_type is not None:
            summed = summed + (self.token_type.weight[0] if types is None else self.token_type(types))
        return self.dropout(self.norm(summed))

    def zero_padding(self, pad_id: int) -> None:
        """The rows of the padding are 0 at first, as in transformers, the one before the first position too."""
        with torch.no_grad():
            self.word.weight[pad_id].zero_()
            if self.first_position:
                self.position.weight[self.first_position - 1].zero_()
