"""Settings of causal LM. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig
from domainbert.pretraining.config import ObjectiveConfig


@dataclass(frozen=True)
class CausalLM(ObjectiveConfig):
    """Predict each token from the tokens before it, as a phase before masked LM (Touchent and de la Clergerie 2026,
    arXiv:2605.12438). The model folder has the head of masked LM; continue from it with masked LM.

    >>> from domainbert import CausalLM
    >>> CausalLM().name
    'causal LM'
    """

    @property
    @override
    def name(self) -> str:
        return "causal LM"

    @override
    def check(self, encoder: EncoderConfig) -> None:
        """Raise `DomainbertError` if the attention of the encoder cannot be causal."""
        if not encoder.supports_causal:
            expected = "a family with absolute or rotary positions, such as BertConfig, or another objective"
            raise DomainbertError(
                found=f"CausalLM with {type(encoder).__name__}, whose attention cannot be causal", expected=expected
            )
