"""The architecture of a DistilBERT encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, get_args

from domainbert.base.ranges import Dropout, Length, check_fields
from domainbert.encoders.bert.config import Activation
from domainbert.encoders.config import Architectures, Deviation, EncoderConfig, Heads, Layers, Sizes, Width, require

if TYPE_CHECKING:
    from typing_extensions import Self

_LAYER_NORM_EPS = 1e-12
_SIZES = {
    "num_layers": "n_layers",
    "hidden_size": "dim",
    "num_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "activation": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "max_length": "max_position_embeddings",
    "initializer_range": "initializer_range",
}


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """A DistilBERT encoder: BERT without token types and pooler (Sanh et al. 2019); the defaults are theirs."""

    model_type = "distilbert"
    architectures: ClassVar[Architectures] = {
        None: ("DistilBertModel",),
        "masked_lm": ("DistilBertForMaskedLM",),
        "tokens": ("DistilBertForTokenClassification",),
        "sequence": ("DistilBertForSequenceClassification",),
    }

    dim: Width = 768
    """Width of the hidden states."""

    n_layers: Layers = 6
    """Number of transformer layers."""

    n_heads: Heads = 12
    """Heads per layer; must divide `dim`."""

    hidden_dim: Width = 3072
    """Width of the feed-forward layers."""

    activation: Activation = "gelu"
    """Activation of the feed-forward layers."""

    dropout: Dropout = 0.1
    """Dropout on hidden states."""

    attention_dropout: Dropout = 0.1
    """Dropout on attention probabilities."""

    seq_classif_dropout: Dropout = 0.2
    """Dropout before the classifier of a sequence head."""

    max_position_embeddings: Length = 512
    """Longest sequence, special tokens included."""

    initializer_range: Deviation = 0.02
    """Standard deviation of the initial weights."""

    def __post_init__(self) -> None:
        """Check that the numbers fit together."""
        check_fields(self)
        require(self.dim % self.n_heads == 0, f"dim: {self.dim} is not divisible by n_heads={self.n_heads}")
        require(
            self.activation in get_args(Activation),
            f"activation: found {self.activation!r}; expected one of {', '.join(get_args(Activation))}",
        )

    @property
    def max_length(self) -> int:
        """Positions are absolute, so their number is the limit."""
        return self.max_position_embeddings

    @property
    def sizes(self) -> Sizes:
        """See `EncoderConfig.sizes`; norms have BERT's epsilon, which is fixed here."""
        own = {name: getattr(self, field) for name, field in _SIZES.items()}
        return Sizes(**own, layer_norm_eps=_LAYER_NORM_EPS)

    def resized(self, sizes: Sizes) -> Self:
        """See `EncoderConfig.resized`."""
        return self.replaced(**{field: getattr(sizes, name) for name, field in _SIZES.items()})

    def with_dropout(self, rate: float) -> Self:
        """The same encoder with its three rates of dropout set to `rate`."""
        return self.replaced(dropout=rate, attention_dropout=rate, seq_classif_dropout=rate)
