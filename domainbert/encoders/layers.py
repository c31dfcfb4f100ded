"""Layers shared by the encoder families. Their arguments are numbers and modules, never a configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from domainbert.encoders.attention import Segments, attend, drop
from domainbert.encoders.packed import select

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014, section 4) that on a CPU draws for each text separately, see `drop`."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, hidden: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return hidden states of any shape after dropout; states (N, W) inside an encoder need their `positions`."""
        return drop(hidden, self.rate, positions=positions) if self.training else hidden


class Attention(nn.Module):
    """`attend` as a module without weights, so that a hook can record queries, keys and values in any family."""

    def __init__(self, dropout: float, window: int | None = None, scale: float | None = None) -> None:
        super().__init__()
        self.dropout, self.window, self.scale = dropout, window, scale

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, bias: Tensor | None = None
    ) -> Tensor:
        """Return the result of `attend`: (B, heads, S, D) each -> (B, heads, S, D)."""
        rate = self.dropout if self.training else 0.0
        return attend(query, key, value, segments, bias=bias, window=self.window, scale=self.scale, dropout=rate)


class SelfAttention(nn.Module):
    """Multi-head self-attention with one matrix product for queries, keys and values."""

    def __init__(self, hidden_size: int, num_heads: int, attention_dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attend = Attention(attention_dropout)
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: Tensor, segments: Segments, positions: Tensor | None = None) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        batch, length, width = hidden.shape
        heads = self.query_key_value(hidden).view(batch, length, 3, self.num_heads, width // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, heads, S, D)
        mixed = self.attend(query, key, value, segments)
        return self.output(select(mixed.transpose(1, 2).reshape(batch, length, width), positions))


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, hidden_size: int, intermediate_size: int, activation: str) -> None:
        super().__init__()
        self.expand = nn.Linear(hidden_size, intermediate_size)
        self.contract = nn.Linear(intermediate_size, hidden_size)
        self.activation = ACTIVATIONS[activation]

    def forward(self, hidden: Tensor) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H)."""
        return self.contract(self.activation(self.expand(hidden)))


class PostNormLayer(nn.Module):
    """A transformer layer that normalises after each residual connection, as BERT does."""

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        hidden_size: int,
        layer_norm_eps: float,
        dropout_rate: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.feed_forward = feed_forward
        self.feed_forward_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(dropout_rate)

    def forward(self, hidden: Tensor, context: Any, positions: Tensor | None = None) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        mixed = self.attention(hidden, context, positions)
        hidden = self.attention_norm(select(hidden, positions) + self.dropout(mixed, positions))
        return self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden), positions))


def initialise(module: nn.Module, initializer_range: float) -> None:
    """Initialise the parameters as BERT: normal weights and zero biases; norms keep torch's ones and zeros."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding | nn.Conv1d):
            nn.init.normal_(part.weight, std=initializer_range)
        if isinstance(part, nn.Linear | nn.Conv1d) and part.bias is not None:
            nn.init.zeros_(part.bias)
