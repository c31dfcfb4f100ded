"""Architecture of a BERT encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from domainbert.encoders.config import Architectures, PostNormConfig, standard_classes


@dataclass(frozen=True)
class BertConfig(PostNormConfig):
    """A BERT encoder (Devlin et al. 2019); the defaults are BERT-base.

    >>> from domainbert import BertConfig
    >>> BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024).max_length
    512
    """

    model_type = "bert"
    architectures: ClassVar[Architectures] = {**standard_classes("Bert"), "pretraining": ("BertForPreTraining",)}
