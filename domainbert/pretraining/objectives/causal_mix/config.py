"""Settings of masked LM mixed with causal LM. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Range
from domainbert.encoders.config import EncoderConfig
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM

if TYPE_CHECKING:
    from domainbert.pretraining.objective import Objective
    from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class CausalMix(MaskedLM):
    """Predict hidden tokens, and in some of the steps the next token from those before it (GPT-BERT, Charpentier and
    Samuel 2024, arXiv:2410.24159; AntLM, Yu et al. 2024, arXiv:2412.03275)."""

    causal_share: Annotated[float, Range(0, 1, above=True, below=True)] = 0.0625
    """Share of the optimiser steps that learn causal LM; GPT-BERT has 1 of 16."""

    @property
    def name(self) -> str:
        """See `ObjectiveConfig.name`."""
        return f"masked LM and, in {100 * self.causal_share:.4g} % of the steps, causal LM"

    def check(self, encoder: EncoderConfig) -> None:
        """See `ObjectiveConfig.check`: nothing but attention may look at the tokens behind one."""
        if not encoder.can_be_causal:
            raise DomainbertError(
                "class_path: CausalMix, but a convolution of the encoder reads the tokens behind one, too; expected an "
                "encoder without one (conv_kernel_size: 0), or masked LM alone"
            )

    def build(self, tokenizer: DomainTokenizer) -> Objective[Any]:
        """See `ObjectiveConfig.build`."""
        from domainbert.pretraining.objectives.causal_mix.objective import CausalMixObjective

        return CausalMixObjective(self, tokenizer)
