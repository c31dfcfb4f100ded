"""Settings of `FineTuning` and `LabelledData`. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import BatchSize, Count, Length
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.training.config import DataSettings, ModuleSettings, OptimConfig, ScheduleConfig
from domainbert.training.hparams import Arguments


@dataclass(frozen=True, kw_only=True)
class WindowSettings(Arguments):
    """Settings of modules and data modules that read labelled text."""

    max_length: Length | None = None
    """Tokens of a window, including [CLS] and [SEP]; longer inputs are split into overlapping windows. None takes all
    positions of the encoder, in Python at most the length of the tokenizer. Positions beyond the row length of its
    pretraining are untrained: if inputs are longer, set the row length here. In Python, module and data need the same
    value."""


@dataclass(frozen=True, kw_only=True)
class LabelledDataSettings(WindowSettings, DataSettings):
    """Settings of `LabelledData`."""

    batch_size: BatchSize = 32
    """Labelled sentences or texts per optimiser step, over all devices."""


@dataclass(frozen=True, kw_only=True)
class LabelledModuleSettings(WindowSettings, ModuleSettings):
    """Settings of every module that trains on labelled text."""

    optim: OptimConfig = OptimConfig(lr=1e-4, head_lr=1e-3)
    """Optimiser; `head_lr` is the learning rate of the head, and of the projections of a distillation."""

    schedule: ScheduleConfig = ScheduleConfig(warmup_fraction=0.1)
    """Learning rate over all steps of the training."""


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings(LabelledModuleSettings):
    """Settings of `FineTuning`, and of the stage `finetune`."""

    init: Literal["pretrained", "random"] = "pretrained"
    """`pretrained` starts from the weights of the model; `random`, the baseline, from random weights."""

    encoder: EncoderConfig | None = None
    """Architecture for `init: random`; None takes the architecture of the model."""

    frozen_layers: Count | None = None
    """Freeze the embeddings and the lowest `frozen_layers` layers; 0 freezes only the embeddings, None nothing."""

    def __post_init__(self) -> None:
        if self.init == "pretrained" and self.encoder is not None:
            raise DomainbertError(where="encoder", found="with init: pretrained", hint="remove it, or set init: random")
        if self.init == "random" and self.frozen_layers is not None:
            raise DomainbertError(
                where="frozen_layers", found="with init: random", hint="remove it, or set init: pretrained"
            )
        check_length(self.max_length, self.encoder)
