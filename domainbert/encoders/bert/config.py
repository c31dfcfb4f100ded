"""Architecture of a BERT encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from domainbert.base.fields import Dropout
from domainbert.encoders.config import Architectures, PostNormConfig, standard_classes


@dataclass(frozen=True)
class BertConfig(PostNormConfig):
    """A BERT encoder (Devlin et al. 2019); the defaults are BERT-base.

    >>> from domainbert import BertConfig
    >>> BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024).max_length
    512
    """

    model_type = "bert"
    supports_causal: ClassVar[bool] = True
    architectures: ClassVar[Architectures] = {**standard_classes("Bert"), "pretraining": ("BertForPreTraining",)}

    classifier_dropout: Dropout | None = None
    """Dropout in a task's head; None is `hidden_dropout_prob`."""

    @override
    def to_json(self) -> dict[str, Any]:
        """Return the fields of `config.json`; no `classifier_dropout` if None, so that files stay as before."""
        fields = super().to_json()
        if self.classifier_dropout is None:
            del fields["classifier_dropout"]
        return fields
