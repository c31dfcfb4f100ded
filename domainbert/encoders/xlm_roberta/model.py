"""The XLM-RoBERTa encoder and its names in Hugging Face checkpoints, all of which are RoBERTa's."""

from __future__ import annotations

from domainbert.encoders.roberta.model import RobertaFamily

FAMILY = RobertaFamily()
