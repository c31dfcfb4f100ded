"""XLM-RoBERTa encoder and parameter names in Hugging Face checkpoints, the same as RoBERTa's."""

from __future__ import annotations

from domainbert.encoders.roberta.model import RobertaFamily

FAMILY = RobertaFamily()
