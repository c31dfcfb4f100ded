"""Bases of pretraining objectives in a YAML, and settings of masking. Free of torch and NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Fraction, Range, check_fields

if TYPE_CHECKING:
    from domainbert.encoders.config import EncoderConfig
    from domainbert.pretraining.objective import Objective
    from domainbert.tokenization.load import DomainTokenizer

ZLoss = Annotated[float, Range(0, 1)]
CORPUS_ADVICE = "try more steps, another optim.lr or a longer schedule.warmup_steps"


@dataclass(frozen=True)
class MaskingConfig:
    """Settings of what masked LM hides (Devlin et al. 2019, section 3.1)."""

    mlm_probability: Annotated[float, Range(0, 1, above=True, below=True)] = 0.15
    """Share of the tokens of a row that are predicted."""

    mask_share: Fraction = 0.8
    """Share of those that become [MASK]."""

    random_share: Fraction = 0.1
    """Share of those that become a random entry of the vocabulary; the rest stays as it is."""

    whole_word: bool = False
    """Hide all pieces of a word together."""

    def __post_init__(self) -> None:
        """Check the shares."""
        check_fields(self)
        if self.mask_share + self.random_share > 1:
            raise DomainbertError(
                f"random_share: found {self.random_share}; expected no more than 1 together with mask_share, "
                f"which is {self.mask_share}"
            )


@dataclass(frozen=True)
class ObjectiveConfig(ABC):
    """Settings of a pretraining objective."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The objective in the words of the field, for the model card."""

    def check(self, encoder: EncoderConfig) -> None:  # noqa: B027  (most have nothing to say)
        """`DomainbertError` where an encoder cannot learn the objective."""

    @abstractmethod
    def build(self, tokenizer: DomainTokenizer) -> Objective[Any]:
        """The objective, from `objective.py` beside this configuration's module, for the corpus's tokenizer."""
