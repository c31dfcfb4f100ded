"""The architecture of a BERT encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from domainbert.base.ranges import Dropout, Length, PositiveFraction, Range, check_fields
from domainbert.encoders.config import Architectures, Deviation, EncoderConfig, Heads, Layers, Sizes, Width, require

if TYPE_CHECKING:
    from typing_extensions import Self

Activation = Literal["gelu", "gelu_new", "relu", "silu"]
_SIZES = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
}


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """A BERT encoder (Devlin et al. 2019); the defaults are BERT-base."""

    model_type = "bert"
    architectures: ClassVar[Architectures] = {
        None: ("BertModel",),
        "masked_lm": ("BertForMaskedLM", "BertForPreTraining"),
        "tokens": ("BertForTokenClassification",),
        "sequence": ("BertForSequenceClassification",),
    }

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

    def __post_init__(self) -> None:
        """Check that the numbers fit together."""
        check_fields(self)
        require(
            self.hidden_size % self.num_attention_heads == 0,
            f"hidden_size: {self.hidden_size} is not divisible by num_attention_heads={self.num_attention_heads}",
        )
        require(
            self.hidden_act in get_args(Activation),
            f"hidden_act: found {self.hidden_act!r}; expected one of {', '.join(get_args(Activation))}",
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """See `EncoderConfig.from_json`; relative positions, which some old checkpoints have, are refused."""
        positions = fields.get("position_embedding_type", "absolute")
        require(positions == "absolute", f"position_embedding_type: found {positions!r}; only 'absolute' is supported")
        return super().from_json(fields)

    @property
    def max_length(self) -> int:
        """Positions are absolute, so their number is the limit."""
        return self.max_position_embeddings - self.position_offset

    @property
    def sizes(self) -> Sizes:
        """See `EncoderConfig.sizes`."""
        own = {name: getattr(self, field) for name, field in _SIZES.items()}
        return Sizes(**own, max_length=self.max_length)

    def resized(self, sizes: Sizes) -> Self:
        """See `EncoderConfig.resized`."""
        own = {field: getattr(sizes, name) for name, field in _SIZES.items()}
        return self.replaced(**own, max_position_embeddings=sizes.max_length + self.position_offset)

    def with_dropout(self, rate: float) -> Self:
        """The same encoder with `hidden_dropout_prob` and `attention_probs_dropout_prob` set to `rate`."""
        return self.replaced(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
