"""The architecture of an MPNet encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from domainbert.base.ranges import Dropout, Length, PositiveFraction
from domainbert.encoders.config import (
    Activation,
    Deviation,
    EncoderConfig,
    Heads,
    Layers,
    Width,
    require,
    usual_classes,
)

if TYPE_CHECKING:
    from typing_extensions import Self

PAD_ID = 1
"""The padding's id in every MPNet: transformers counts positions from it whatever `config.json` says."""

NUM_BUCKETS = 32
"""Distances that its attention tells apart: transformers computes so many whatever `config.json` says."""


@dataclass(frozen=True)
class MPNetConfig(EncoderConfig):
    """An MPNet encoder (Song et al. 2020): BERT's layers without token types, and attention biased by distance.

    The defaults are those of the class in transformers; mpnet-base has 514 positions and an epsilon of 1e-5
    (`encoder: mpnet-base`).

    >>> from domainbert import MPNetConfig
    >>> MPNetConfig(num_hidden_layers=6).model_type
    'mpnet'
    """

    model_type = "mpnet"
    architectures = usual_classes("MPNet")
    special_ids: ClassVar[Mapping[str, int]] = {"pad_token_id": PAD_ID, "bos_token_id": 0, "eos_token_id": 2}

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
    """Rows of the position table: two more than the tokens of the longest sequence."""

    initializer_range: Deviation = 0.02
    """Standard deviation of the initial weights."""

    layer_norm_eps: PositiveFraction = 1e-12
    """Added to the variance in layer normalisation."""

    def __post_init__(self) -> None:
        """Check that the numbers fit together."""
        super().__post_init__()
        rows, least = self.max_position_embeddings, self.position_offset + 3
        require(
            rows >= least,
            f"max_position_embeddings: found {rows}; expected {least} or more, as the first {self.position_offset} are "
            "not used",
        )

    @classmethod
    @override
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Read `config.json`; the padding's id and the number of buckets must be those of every MPNet."""
        for name, fixed in {"pad_token_id": PAD_ID, "relative_attention_num_buckets": NUM_BUCKETS}.items():
            found = fields.get(name, fixed)
            require(found == fixed, f"{name}: found {found!r:.80}; expected {fixed}, as transformers computes no other")
        return super().from_json(fields)

    @property
    def position_offset(self) -> int:
        """The row behind the padding's."""
        return PAD_ID + 1

    @property
    def max_length(self) -> int:
        """Positions are absolute, so their number is the limit."""
        return self.max_position_embeddings - self.position_offset
