"""Bases of pretraining objectives in a YAML, and settings of masking. Free of torch and NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Fraction, Range
from domainbert.base.validation import check_fields

if TYPE_CHECKING:
    from domainbert.encoders.config import EncoderConfig
    from domainbert.pretraining.objective import Objective
    from domainbert.tokenization.load import DomainTokenizer

Rate = Annotated[float, Range(0, 1, above=True, below=True)]
Spans = Literal["geometric", "ngram"]
ZLoss = Annotated[float, Range(0, 1)]
CORPUS_ADVICE = "try more steps, another optim.lr or a longer schedule.warmup_steps"


@dataclass(frozen=True)
class MaskingConfig:
    """Settings of what masked LM hides (Devlin et al. 2019, section 3.1)."""

    mlm_probability: Rate = 0.15
    """Share of the tokens of a row that are predicted."""

    mask_share: Fraction = 0.8
    """Share of those that become [MASK]."""

    random_share: Fraction = 0.1
    """Share of those that become a random entry of the vocabulary; the rest stays as it is."""

    whole_word: bool = False
    """Hide all pieces of a word together."""

    spans: Spans | None = None
    """Hide stretches of whole words: `geometric`, 1 to 10 words, 3.8 in the mean, each hidden, replaced or kept as one
    (Joshi et al. 2020, section 3.1); `ngram`, 1 to 3 words, 1.6 in the mean (DeBERTa's code)."""

    final_mlm_probability: Rate | None = None
    """Share of the tokens that are predicted at the end of the training; from the first step on it goes there in a
    straight line (Ankner et al. 2024, arXiv:2305.15096). None keeps `mlm_probability`."""

    frequency_power: Fraction = 0.0
    """Hide tokens in proportion to how often they stand in the corpus, to minus this power: what is frequent is learnt
    soon, and hidden less. 0.5 is XLM's (Conneau and Lample 2019, section 3.3); with 0 all are hidden alike."""

    def __post_init__(self) -> None:
        """Check the shares, and that it is said once what is hidden together."""
        check_fields(self)
        if self.frequency_power and (self.whole_word or self.spans is not None):
            raise DomainbertError(
                f"frequency_power: {self.frequency_power} beside {'whole_word' if self.whole_word else 'spans'}; "
                "expected single tokens, which have a frequency of their own"
            )
        if self.whole_word and self.spans is not None:
            raise DomainbertError(
                f"whole_word: true beside spans: {self.spans}, which are of whole words; expected one of the two"
            )
        if self.mask_share + self.random_share > 1:
            raise DomainbertError(
                f"random_share: found {self.random_share}; expected no more than 1 together with mask_share, "
                f"which is {self.mask_share}"
            )

    @property
    def mlm_probabilities(self) -> tuple[float, float]:
        """The share of the tokens that are predicted at the start of a training, and at its end."""
        final = self.final_mlm_probability
        return self.mlm_probability, self.mlm_probability if final is None else final

    def mlm_probability_at(self, progress: float) -> float:
        """The share of the tokens that are predicted after a share of the steps, in [0, 1)."""
        first, final = self.mlm_probabilities
        return first + (final - first) * progress

    def step_of_most(self, steps: range) -> int:
        """The one of some optimiser steps that predicts the most tokens."""
        first, final = self.mlm_probabilities
        return steps[-1] if final > first else steps[0]


@dataclass(frozen=True)
class ObjectiveConfig(ABC):
    """Settings of a pretraining objective."""

    entry_point_group = "domainbert.objectives"  # where installed packages register objectives of their own

    @property
    @abstractmethod
    def name(self) -> str:
        """The objective in the words of the field, for the model card."""

    def check(self, encoder: EncoderConfig) -> None:  # noqa: B027  (most have nothing to say)
        """`DomainbertError` where an encoder cannot learn the objective."""

    @abstractmethod
    def build(self, tokenizer: DomainTokenizer) -> Objective[Any]:
        """The objective, from `objective.py` beside this configuration's module, for the corpus's tokenizer."""
