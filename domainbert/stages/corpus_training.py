"""Settings that `pretrain` and `distill` share."""

from __future__ import annotations

from dataclasses import dataclass

from domainbert.base.ranges import BatchSize, Dropout, Length, PositiveInt
from domainbert.training.config import Budget
from domainbert.training.optim_config import OptimConfig, ScheduleConfig
from domainbert.training.settings import Training


@dataclass(frozen=True, kw_only=True)
class CorpusTraining(Training):
    """Settings of a training on a prepared corpus."""

    budget: Budget
    """Length of the training; exactly one of the three is given."""

    max_length: Length = 128
    """Tokens of a row, [CLS] and [SEP] included."""

    batch_size: BatchSize = 64
    """Rows of an optimiser step, over all devices."""

    dropout: Dropout | None = None
    """Dropout of the model during this stage; the model folder keeps its own. None leaves it as it is."""

    optim: OptimConfig = OptimConfig()
    """Optimiser."""

    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate over the steps."""

    validate_every: PositiveInt | None = None
    """Optimiser steps between validations; None validates ten times."""
