"""Architecture of an XLM-RoBERTa encoder."""

from __future__ import annotations

from dataclasses import dataclass

from domainbert.encoders.config import standard_classes
from domainbert.encoders.roberta.config import RobertaConfig


@dataclass(frozen=True)
class XLMRobertaConfig(RobertaConfig):
    """An XLM-RoBERTa encoder (Conneau et al. 2020): RoBERTa with a multilingual vocabulary.

    >>> from domainbert import XLMRobertaConfig
    >>> XLMRobertaConfig(max_position_embeddings=514).max_length
    512
    """

    model_type = "xlm-roberta"
    architectures = standard_classes("XLMRoberta")
