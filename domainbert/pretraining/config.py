"""Settings of masking, and the base class of objective settings. Does not import torch or NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.choices import import_sibling, sibling_class
from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Count, Fraction, Range, check_fields
from domainbert.training.config import ModuleSettings

if TYPE_CHECKING:
    from domainbert.encoders.config import EncoderConfig
    from domainbert.pretraining.objective import Objective
    from domainbert.tokenization.load import DomainTokenizer

Rate = Annotated[float, Range(0, 1, exclude_low=True, exclude_high=True)]
ZLoss = Annotated[float, Range(0, 1)]
CORPUS_ADVICE = "try more steps, another optim.lr or a longer schedule.warmup_steps"


@dataclass(frozen=True)
class MaskingConfig:
    """Token selection for masked LM (Devlin et al. 2019, section 3.1)."""

    mlm_probability: Rate = 0.15
    """Share of the tokens of a row to predict."""

    mask_share: Fraction = 0.8
    """Share of the predicted tokens that become [MASK]."""

    random_share: Fraction = 0.1
    """Share of the predicted tokens that become a random token; the remaining ones are kept."""

    whole_word: bool = False
    """Hide all pieces of a word together."""

    final_mlm_probability: Rate | None = None
    """Share of the tokens to predict at the end of training, reached linearly from `mlm_probability` (Ankner et al.
    2024, arXiv:2305.15096). null keeps `mlm_probability` constant."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.mask_share + self.random_share > 1:
            raise DomainbertError(
                where="random_share",
                found=self.random_share,
                expected=f"at most {1 - self.mask_share:g}, because the sum with mask_share={self.mask_share} is "
                "at most 1",
            )

    @property
    def mlm_probabilities(self) -> tuple[float, float]:
        """Shares of the tokens to predict at the start and at the end of training."""
        final = self.final_mlm_probability
        return self.mlm_probability, self.mlm_probability if final is None else final

    def mlm_probability_at(self, progress: float) -> float:
        """Return the share of the tokens to predict at `progress`, the share of completed steps in [0, 1)."""
        initial, final = self.mlm_probabilities
        return initial + (final - initial) * progress

    def step_with_most_targets(self, steps: range) -> int:
        """Return the step with the most tokens to predict: the last one if their share rises, else the first."""
        initial, final = self.mlm_probabilities
        return steps[-1] if final > initial else steps[0]


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings(ModuleSettings):
    """Settings of `Pretraining`, and of the stage `pretrain`."""

    embedding_steps: Count = 0
    """Number of initial optimiser steps that train only the embeddings and the head, for a model with a new
    vocabulary."""


@dataclass(frozen=True)
class ObjectiveConfig(ABC):
    """Settings of a pretraining objective."""

    entry_point_group = "domainbert.objectives"  # entry points by which installed packages add objectives

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the objective in the literature, for the model card."""

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self, encoder: EncoderConfig) -> None:  # noqa: B027  (most accept any encoder)
        """Raise `DomainbertError` if the objective does not support an encoder; by default it supports all."""

    def build(self, tokenizer: DomainTokenizer) -> Objective[Any]:
        """Return the objective for the tokenizer of a corpus.

        Its class is in `objective.py` in the folder of the settings: for `MaskedLM`, it is `MaskedLMObjective`.
        """
        module = import_sibling(type(self), "objective", owner="objective")
        base = f"{__package__}.objective.Objective"
        objective: Objective[Any] = sibling_class(type(self), module, "Objective", base)(self, tokenizer)
        return objective
