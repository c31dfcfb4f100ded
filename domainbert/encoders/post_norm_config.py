"""Fields of BERT's `config.json`, which the families that are derived from BERT also have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import override

from domainbert.base.ranges import Dropout, Length, PositiveFraction, Range
from domainbert.encoders.config import Activation, Deviation, EncoderConfig, Heads, Layers, Width, require

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class PostNormConfig(EncoderConfig):
    """Base of BERT, ALBERT, ELECTRA, RoBERTa and DeBERTa; the defaults are BERT-base. Families add `max_length`."""

    hidden_size: Width = 768
    """Width of the hidden states."""

    num_hidden_layers: Layers = 12
    """Number of transformer layers."""

    num_attention_heads: Heads = 12
    """Heads per layer; must divide `hidden_size`."""

    intermediate_size: Width = 3072
    """Width of the feed-forward layers."""

    hidden_act: Activation = "gelu"
    """Activation of the feed-forward layers."""

    hidden_dropout_prob: Dropout = 0.1
    """Dropout on hidden states."""

    attention_probs_dropout_prob: Dropout = 0.1
    """Dropout on attention probabilities."""

    max_position_embeddings: Length = 512
    """Longest sequence, special tokens included."""

    type_vocab_size: Annotated[int, Range(1, 1000)] = 2
    """Number of token types (sentence A and B of a pair)."""

    initializer_range: Deviation = 0.02
    """Standard deviation of the initial weights."""

    layer_norm_eps: PositiveFraction = 1e-12
    """Added to the variance in layer normalisation."""

    @classmethod
    @override
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Read `config.json`; relative positions, which some old checkpoints have, are not supported."""
        positions = fields.get("position_embedding_type", "absolute")
        require(positions == "absolute", f"position_embedding_type: found {positions!r}; only 'absolute' is supported")
        return super().from_json(fields)
