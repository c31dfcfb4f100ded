"""Settings of the detection of replaced tokens. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from domainbert.pretraining.config import ObjectiveConfig

if TYPE_CHECKING:
    from domainbert.pretraining.objective import Objective
    from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class ReplacedTokens(ObjectiveConfig):
    """Tell the tokens that a small generator has put in place of hidden ones (Clark et al. 2020)."""

    weight: float = 50.0
    """Factor of the discriminator's loss."""

    last_rate: float = 0.3
    """Share of the tokens that are hidden from the eleventh step on; it rises from 0.15."""

    keep_generator: bool = True
    """Whether the generator gets a folder, too."""

    @property
    def name(self) -> str:
        """See `ObjectiveConfig.name`."""
        return "replaced tokens"

    def build(self, tokenizer: DomainTokenizer) -> Objective[Any]:
        """See `ObjectiveConfig.build`."""
        from mine.replaced_tokens.objective import ReplacedTokensObjective

        return ReplacedTokensObjective(self, tokenizer)
