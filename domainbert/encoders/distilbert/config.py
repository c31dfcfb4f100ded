"""The architecture of a DistilBERT encoder."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import get_args

from domainbert.base.ranges import Dropout, Length, check_fields
from domainbert.encoders.bert.config import Activation, BertConfig
from domainbert.encoders.config import Deviation, EncoderConfig, Heads, Layers, Width, require

_BERT_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "max_position_embeddings": "max_position_embeddings",
    "initializer_range": "initializer_range",
}


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """A DistilBERT encoder: BERT without token types and pooler (Sanh et al. 2019); the defaults are theirs."""

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
    def model_type(self) -> str:
        """Always `distilbert`."""
        return "distilbert"

    @property
    def max_length(self) -> int:
        """Positions are absolute, so their number is the limit."""
        return self.max_position_embeddings

    @property
    def as_bert(self) -> BertConfig:
        """The same sizes under BERT's names; norms have BERT's epsilon, which is fixed here."""
        return BertConfig(**{name: getattr(self, own) for name, own in _BERT_NAMES.items()})

    @classmethod
    def of_bert(cls, sizes: BertConfig) -> DistilBertConfig:
        """The same sizes as those of a BERT."""
        return cls(**{own: getattr(sizes, name) for name, own in _BERT_NAMES.items()})

    def with_dropout(self, rate: float) -> DistilBertConfig:
        """The same encoder with its three rates of dropout set to `rate`."""
        return dataclasses.replace(self, dropout=rate, attention_dropout=rate, seq_classif_dropout=rate)
