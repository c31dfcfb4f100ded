"""Layers of DeBERTa: attention with relative positions, and a convolution within texts."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.encoders.base import TokenEmbeddings
from domainbert.encoders.config import Sizes
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.dropout import drop
from domainbert.encoders.layers import ACTIVATIONS, Dropout, MultiHead, PostNormLayer, Segments, StackedLinear
from domainbert.encoders.packed import Packed, select

_BLOCK = 128  # states per product with distance embeddings; the products take a tenth of a layer's time at 512 tokens


class Context(NamedTuple):
    """Values that all layers share in a batch."""

    segments: Segments
    segment_ids: Tensor
    """(B, S)."""
    distances: Tensor
    """Distance embeddings, (R, H), before dropout."""
    distance_rows: Tensor
    """(2, 2 S), rows of `distances` for distances S - 1, ..., -S and 1 - S, ..., S; the last column is not used."""


class WordEmbeddings(TokenEmbeddings):
    """Sum of word and optional token-type embeddings, projected to the hidden size and normalised."""

    def __init__(self, vocab_size: int, width: int, num_types: int, sizes: Sizes) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, width)
        self.position = None
        self.token_type = nn.Embedding(num_types, width) if num_types else None
        has_full_width = width == sizes.hidden_size
        self.project = nn.Identity() if has_full_width else nn.Linear(width, sizes.hidden_size, bias=False)
        self.norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.dropout = Dropout(sizes.dropout)

    def forward(self, tokens: Packed) -> Tensor:
        """Return the input of the first layer: (B, S) -> (B, S, H)."""
        summed = self.add_types(self.word(tokens.input_ids), tokens)
        # in the precision of the embeddings; under autocast the sums of the layers would otherwise have 16 bits
        return self.dropout(self.norm(self.project(summed).to(summed.dtype)))


class DistanceEmbeddings(nn.Module):
    """Embeddings of the distances between two tokens; large distances share embeddings."""

    rows: Tensor

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(2 * config.num_distances, config.hidden_size)  # of negative and other distances
        normed = config.norm_rel_ebd == "layer_norm"
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if normed else nn.Identity()
        # columns: distances 1 - max_length to max_length - 1, descending in the first row of `rows`
        ascending = [_distance_row(distance, config) for distance in range(1 - config.max_length, config.max_length)]
        self.register_buffer("rows", torch.tensor([ascending[::-1], ascending]), persistent=False)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """Return `distances` (R, H) and `distance_rows` (2, 2 S) of `Context`, for packed rows of S = `length` tokens.

        Packed rows may be longer than the longest text: tokens at larger distances are in different texts.
        """
        limit = self.rows.shape[1] // 2  # the largest distance; column d + limit of `rows` is for distance d
        distances = torch.arange(1 - length, length + 1, device=self.rows.device).clamp(-limit, limit)
        return self.norm(self.embeddings.weight), self.rows[:, distances + limit]


def _distance_row(distance: int, config: DebertaV2Config) -> int:
    """Return the row of the embedding of a distance i - j between query i and key j."""
    half = config.num_distances
    index = bucket(distance, half, config.max_distance) if config.position_buckets >= 1 else distance
    return min(max(index + half, 0), 2 * half - 1)


def bucket(distance: int, num_buckets: int, max_distance: int) -> int:
    """Return the bucket of a distance, with the same sign, as in Microsoft's `make_log_bucket_position`.

    Half of the buckets have one distance each; the others are logarithmic, up to `max_distance`.
    """
    middle = num_buckets // 2
    if abs(distance) <= middle:
        return distance
    share = math.log(abs(distance) / middle) / math.log((max_distance - 1) / middle)  # of the logarithmic scale
    index = math.ceil(share * (middle - 1)) + middle
    return index if distance > 0 else -index


class DisentangledSelfAttention(MultiHead):
    """Self-attention on the content and the relative position of tokens (He et al. 2021, section 3.1).

    The score of query i and key j is (q_i k_j + q_i Kr_d + k_j Qr_d) / sqrt(3 D), where Kr_d and Qr_d are projections
    of the embedding of distance d = i - j; with only one of the last two terms, the divisor is sqrt(2 D).
    """

    def __init__(self, config: DebertaV2Config) -> None:
        width, num_heads, terms = config.hidden_size, config.num_attention_heads, config.terms
        scale = ((1 + len(terms)) * (width // num_heads)) ** -0.5
        super().__init__(width, num_heads, config.attention_probs_dropout_prob, scale=scale)
        self.terms, self.scale = terms, scale
        self.distances = None if config.share_att_key else StackedLinear(width, width, len(self.terms))
        self.distance_dropout = config.hidden_dropout_prob

    def forward(self, hidden: Tensor, context: Context, positions: Tensor | None = None) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        query, key, value = self.project(hidden)
        bias = self._position_scores(query, key, context)
        return self.join_heads(self.attend(query, key, value, context.segments, bias), positions)

    def _position_scores(self, query: Tensor, key: Tensor, context: Context) -> Tensor:
        """Return the scaled terms with distances, in fp32 or wider, as in Microsoft's code: (B, heads, S, S)."""
        descending, ascending = context.distance_rows
        scores: list[Tensor] = []
        for term, table in zip(self.terms, self._project_distances(context.distances), strict=True):
            if term == "c2p":  # for query i, the distance i - j descends along the keys j
                products = distance_scores(query, table[:, descending])
            else:  # for key j, the distance i - j ascends along the queries i
                products = distance_scores(key, table[:, ascending]).transpose(-1, -2)
            scores.append(products.to(torch.promote_types(products.dtype, torch.float32)))
        return scores[0] if len(scores) == 1 else scores[0] + scores[1]

    def _project_distances(self, embeddings: Tensor) -> Tensor:
        """Return the scaled projections of distance embeddings for each term: (R, H) -> (terms, heads, R, D)."""
        if self.training:
            embeddings = drop(embeddings, self.distance_dropout)
        if self.distances is not None:
            projected = self.distances(embeddings)
        else:  # `share_att_key`: c2p projects like the keys, p2c like the queries
            shared, width = self.query_key_value, embeddings.shape[-1]
            starts = [width if term == "c2p" else 0 for term in self.terms]  # rows: queries, then keys, then values
            weight, bias = (torch.cat([part[n : n + width] for n in starts]) for part in (shared.weight, shared.bias))
            projected = functional.linear(embeddings, weight, bias)
        heads = projected.unflatten(-1, (len(self.terms), self.num_heads, -1)).permute(1, 2, 0, 3)
        return heads * self.scale


def distance_scores(states: Tensor, table: Tensor) -> Tensor:
    """Return the products of states and embeddings of their distances: (B, heads, S, D) -> (B, heads, S, S).

    State i has rows S - 1 - i to 2 S - 2 - i of the `table` (heads, 2 S, D), one per token, without a lookup per pair.
    """
    batch, _, length, _ = states.shape
    by_head = states.transpose(0, 1)
    # A block needs only the rows of its distances. An exported graph is used for all lengths, so it has one block.
    blocks = (by_head,) if torch.compiler.is_exporting() else by_head.split(_BLOCK, dim=-2)
    parts, begin = [], length
    for block in blocks:
        count = block.shape[-2]
        begin -= count  # S - 1 - (last state of the block), the first row that the block needs
        products = block.flatten(1, 2) @ table[:, begin : begin + length + count].transpose(-1, -2)
        parts.append(_align_rows(products.unflatten(1, (batch, count))))  # from (heads, B, count, S + count)
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)).transpose(0, 1)


def _align_rows(products: Tensor) -> Tensor:
    """Return S entries of each row i, from n - 1 - i on, as a view: (..., n, S + n) -> (..., n, S).

    With n = 2 and S = 3, the rows a0 to a4 and b0 to b4 become a1 a2 a3 and b0 b1 b2. In the flattened products these
    selections begin S + n - 1 entries apart, so they are the beginnings of rows of that width.
    """
    count, width = products.shape[-2:]  # n and S + n
    rows = products.flatten(-2)[..., count - 1 : -1].unflatten(-1, (count, width - 1))
    return rows[..., : width - count]


class ConvolvedLayer(PostNormLayer):
    """A layer with a parallel convolution (Microsoft's `ConvLayer`), which does not cross the borders of texts."""

    def __init__(self, attention: nn.Module, sizes: Sizes, kernel_size: int, activation: str) -> None:
        super().__init__(attention, sizes)
        self.conv = nn.Conv1d(sizes.hidden_size, sizes.hidden_size, kernel_size)
        self.conv_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.conv_activation = torch.tanh if activation == "tanh" else ACTIVATIONS[activation]

    def forward(self, hidden: Tensor, context: Context, positions: Tensor | None = None) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        # the convolution as a linear layer on the concatenated states around each token
        around = select(neighbours(hidden, context.segment_ids, self.conv.kernel_size[0]).flatten(-2), positions)
        convolved = self.conv_activation(
            self.dropout(functional.linear(around, self.conv.weight.flatten(1), self.conv.bias))
        )
        return self.conv_norm(super().forward(hidden, context, positions) + convolved)


def neighbours(hidden: Tensor, segment_ids: Tensor, count: int) -> Tensor:
    """Return the states of `count` tokens around each token, 0 for other texts: (B, S, H) -> (B, S, H, count)."""
    reach, length = count // 2, hidden.shape[1]
    states = functional.pad(hidden, (0, 0, reach, reach))
    ids = functional.pad(segment_ids, (reach, reach), value=-1)
    shifted = [
        states[:, n : n + length] * (ids[:, n : n + length] == segment_ids).unsqueeze(-1).to(hidden.dtype)
        for n in range(count)
    ]
    return torch.stack(shifted, dim=-1)
