"""Architecture of a DistilBERT encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from domainbert.base.fields import Dropout, Length
from domainbert.encoders.config import Activation, Deviation, EncoderConfig, Heads, Layers, Width, standard_classes

_QA_DROPOUT = 0.1  # default of transformers


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """A DistilBERT encoder: BERT without token types and pooler (Sanh et al. 2019), with the paper's defaults.

    >>> from domainbert import DistilBertConfig
    >>> DistilBertConfig(n_layers=3).dim
    768
    """

    model_type = "distilbert"
    architectures = standard_classes("DistilBert")
    size_fields: ClassVar[dict[str, str]] = {
        "num_layers": "n_layers",
        "hidden_size": "dim",
        "num_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "max_length": "max_position_embeddings",
    }
    layer_norm_eps: ClassVar[float] = 1e-12

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

    qa_dropout: Dropout = _QA_DROPOUT
    """Dropout before the start and end scores of a span head."""

    max_position_embeddings: Length = 512
    """Longest sequence, special tokens included."""

    initializer_range: Deviation = 0.02
    """Standard deviation of the initial weights."""

    @override
    def to_json(self) -> dict[str, Any]:
        fields = super().to_json()
        if self.qa_dropout == _QA_DROPOUT:
            del fields["qa_dropout"]
        return fields
