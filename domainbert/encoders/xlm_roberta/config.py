"""The architecture of an XLM-RoBERTa encoder."""

from __future__ import annotations

from dataclasses import dataclass

from domainbert.encoders.config import usual_classes
from domainbert.encoders.roberta.config import RobertaConfig


@dataclass(frozen=True)
class XLMRobertaConfig(RobertaConfig):
    """An XLM-RoBERTa encoder (Conneau et al. 2020), which is RoBERTa's; the vocabulary is of many languages.

    >>> from domainbert import XLMRobertaConfig
    >>> XLMRobertaConfig(max_position_embeddings=514).max_length
    512
    """

    model_type = "xlm-roberta"
    architectures = usual_classes("XLMRoberta")
