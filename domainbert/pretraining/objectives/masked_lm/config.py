"""Settings of masked LM. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from domainbert.pretraining.config import MaskingConfig, ObjectiveConfig

if TYPE_CHECKING:
    from domainbert.pretraining.objective import Objective
    from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class MaskedLM(ObjectiveConfig):
    """Predict hidden tokens (Devlin et al. 2019, section 3.1)."""

    masking: MaskingConfig = MaskingConfig()
    """Which tokens are hidden and predicted."""

    @property
    def name(self) -> str:
        """See `ObjectiveConfig.name`."""
        return "masked LM"

    def build(self, tokenizer: DomainTokenizer) -> Objective[Any]:
        """See `ObjectiveConfig.build`."""
        from domainbert.pretraining.objectives.masked_lm.objective import MaskedLMObjective

        return MaskedLMObjective(self, tokenizer)
