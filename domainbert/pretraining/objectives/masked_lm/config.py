"""Settings of masked LM. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from domainbert.pretraining.config import MaskingConfig, ObjectiveConfig, ZLoss


@dataclass(frozen=True)
class MaskedLM(ObjectiveConfig):
    """Predict hidden tokens (Devlin et al. 2019, section 3.1).

    >>> from domainbert import MaskedLM
    >>> MaskedLM().masking.mlm_probability
    0.15
    """

    masking: MaskingConfig = MaskingConfig()
    """Selection of the tokens to hide and predict."""

    z_loss: ZLoss = 0.0
    """Weight of the squared log normaliser of the softmax, which keeps logits from drifting; PaLM uses 1e-4 (Chowdhery
    et al. 2022, section 5)."""

    @property
    @override
    def name(self) -> str:
        return "masked LM"
