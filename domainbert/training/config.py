"""Training settings: optimiser, schedule, batches, budget, devices, loggers. This module does not import torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from domainbert.base.errors import DomainbertError, needs_package
from domainbert.base.fields import (
    SPEED_ONLY,
    BatchSize,
    CheckedFields,
    Count,
    Dropout,
    Fraction,
    PositiveFraction,
    PositiveInt,
    Range,
    Seed,
    Workers,
    check_fields,
)
from domainbert.base.paths import is_installed
from domainbert.data.remote_files import CacheConfig
from domainbert.models.card_config import CardConfig
from domainbert.training.hparams import Arguments
from domainbert.training.length_phases import (
    LengthPhase,
    MaxLength,
    check_phases,
    phases_of,
    rows_per_step,
    steps_of_phases,
)

Beta = Annotated[float, Range(0, 1, exclude_high=True)]


@dataclass(frozen=True)
class OptimConfig(CheckedFields):
    """Optimiser settings.

    >>> from domainbert import AdamW, OptimConfig
    >>> AdamW(lr=1e-4, layer_decay=0.9) == OptimConfig("adamw", lr=1e-4, layer_decay=0.9)
    True
    """

    name: Literal["adamw", "muon"] = "adamw"
    """`adamw`, or `muon`: Muon for the hidden weight matrices and AdamW for all other parameters."""

    lr: PositiveFraction = 5e-4
    """Peak learning rate. Muon's updates are scaled to the size of AdamW's, so that both use the same rate."""

    head_lr: PositiveFraction | None = None
    """Peak learning rate of a fine-tuning head; None takes `lr`."""

    layer_decay: PositiveFraction = 1.0
    """Multiply the learning rate by this factor at each layer from the top down to the embeddings; the top layer has
    `lr`, the head `head_lr`. 1 disables it."""

    weight_decay: Fraction = 0.01
    """Decoupled weight decay; not applied to biases, norms and embeddings."""

    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """Decay rates of AdamW's moments."""

    eps: PositiveFraction = 1e-6
    """Term added to AdamW's denominator."""

    max_grad_norm: Annotated[float, Range(0, 1e6)] = 1.0
    """Clip the gradient to this norm; 0 disables clipping."""


AdamW = OptimConfig
"""`OptimConfig` under the name of its default optimiser.

>>> from domainbert import AdamW
>>> AdamW(lr=1e-4).name
'adamw'
"""


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning-rate schedule over the optimiser steps.

    >>> from domainbert import ScheduleConfig
    >>> ScheduleConfig("cosine", warmup_steps=500).name
    'cosine'
    """

    name: Literal["linear", "cosine", "wsd", "constant"] = "linear"
    """Decay after the warm-up: linear, cosine, none, or `wsd`: constant, then 1 - sqrt decay at the end."""

    warmup_steps: Count | None = None
    """Steps of linear warm-up; None takes `warmup_fraction`."""

    warmup_fraction: Fraction = 0.06
    """Fraction of all steps used for warm-up, unless `warmup_steps` is given."""

    decay_fraction: Fraction = 0.2
    """Fraction of all steps, at the end, in which `wsd` decays."""

    min_lr_ratio: Fraction = 0.0
    """Final learning rate as a fraction of the peak."""

    def __post_init__(self) -> None:
        check_fields(self)
        warmup = self.warmup_fraction if self.warmup_steps is None else 0.0
        if self.name == "wsd" and warmup + self.decay_fraction > 1:
            found = f"{self.decay_fraction:g} with warmup_fraction: {warmup:g}"
            raise DomainbertError(where="decay_fraction", found=found, expected="a sum of at most 1")


@dataclass(frozen=True)
class AveragingConfig(CheckedFields):
    """Weight averaging over optimiser steps; validation and the saved model use the average."""

    name: Literal["ema", "last"]
    """`ema`: exponential moving average from the first step. `last`: mean over the final `fraction` of the steps."""

    decay: Beta = 0.999
    """Decay rate of `ema`: relative weight of a step compared with the next; 0.999 averages about 1,000 steps."""

    fraction: PositiveFraction = 0.25
    """Fraction of all steps, at the end, that `last` averages."""


Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
MicroBatchSize = BatchSize | Literal["auto"] | None
LoggerName = Literal["jsonl", "tensorboard", "wandb", "mlflow"]

_EXTRAS = ("wandb", "mlflow")  # loggers that need the package of the same name


def check_logger_installed(name: LoggerName) -> None:
    """Raise `DomainbertError`, which names the extra, if the package of a logger is not installed."""
    if name in _EXTRAS and not is_installed(name):
        raise needs_package(name, name).at("loggers")


@dataclass(frozen=True, kw_only=True)
class ModuleSettings(Arguments):
    """Settings of every module that trains."""

    optim: OptimConfig = OptimConfig()
    """Optimiser."""

    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate over all steps of the training."""

    dropout: Dropout | None = None
    """Dropout in this training; the config of the saved model keeps its own value. None takes the value of the config,
    which is 0 in published ModernBERT models."""

    activation_checkpointing: bool = field(default=False, metadata=SPEED_ONLY)
    """Keep only the input of each layer, and recompute the layer in the backward pass: a third more computation, a
    fraction of the memory, the same result."""


@dataclass(frozen=True, kw_only=True)
class DataSettings(Arguments):
    """Settings of every data module; a subclass adds `batch_size`."""

    batch_size: BatchSize
    """Rows or examples per optimiser step, over all devices."""

    num_workers: Workers | None = field(default=None, metadata=SPEED_ONLY)
    """Worker processes that build batches. None uses a thread for a GPU; on a CPU, the training process builds each
    batch before its step. The batches do not depend on it."""


@dataclass(frozen=True, kw_only=True)
class CorpusDataSettings(DataSettings):
    """Settings of `PretrainingData` and `DistillationData`."""

    max_length: MaxLength = 128
    """Tokens per row, including [CLS] and [SEP]; or a list of phases with increasing lengths, which take
    shares of all steps: in Python they need `Trainer(max_steps=...)`."""

    batch_size: BatchSize = 64
    """Rows per optimiser step, over all devices; phases with shorter rows have more rows, so that tokens stay equal."""

    cache: CacheConfig | None = field(default=None, metadata=SPEED_ONLY)
    """Local folder, and its maximum size, that caches a corpus whose parts are at a URL (see `merge`):
    {folder: /local/law, gigabytes: 100}."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of every training. Stages that train inherit them, and override docstrings where the meaning differs."""

    precision: Precision = "auto"
    """`auto` is bf16-mixed where bf16 is fast (GPUs, CPUs with AMX, AMD CPUs with AVX512-BF16), else 32-true."""

    micro_batch_size: MicroBatchSize = field(default=None, metadata=SPEED_ONLY)
    """Rows that a device computes at once; None takes its share of the batch. Smaller values need less memory. On a GPU
    `auto` takes the largest size that fits, which it determines before the first step."""

    loggers: tuple[LoggerName, ...] = field(default=("jsonl", "tensorboard"), metadata=SPEED_ONLY)
    """Loggers of metrics; `wandb` and `mlflow` need the extra of the same name."""

    checkpoint_every: PositiveInt | None = field(default=None, metadata=SPEED_ONLY)
    """Optimiser steps between checkpoints; None writes one every ten minutes. A checkpoint is also written when a
    signal ends the training, and after each validation (in fine-tuning less often if saving a large model takes more
    than a twentieth of the time)."""

    trainer: dict[str, Any] | None = None
    """Other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy` (not fsdp in distillation), ..."""

    card: CardConfig = field(default_factory=CardConfig, metadata=SPEED_ONLY)
    """Additional content of the model card: licence, languages, data sets, tags."""

    def check_micro_batches(self, batch_size: int) -> None:
        """Raise `DomainbertError` if `micro_batch_size` does not divide the batch size."""
        size = self.micro_batch_size
        if isinstance(size, int) and batch_size % size:
            raise DomainbertError(
                where="micro_batch_size", found=size, expected=f"a divisor of batch_size, {batch_size}"
            )


@dataclass(frozen=True)
class Budget:
    """Length of a pretraining: exactly one of the three settings is given."""

    max_steps: PositiveInt | None = None
    """Optimiser steps."""

    max_tokens: Annotated[int, Range(1, 10**15)] | None = None
    """Tokens to train on, without special tokens and padding."""

    max_epochs: Annotated[float, Range(0, 1e6, exclude_low=True)] | None = None
    """Passes over the training split."""

    def __post_init__(self) -> None:
        """Check that exactly one setting is given, and its range."""
        check_fields(self)
        count = sum(value is not None for value in (self.max_steps, self.max_tokens, self.max_epochs))
        if count != 1:
            raise DomainbertError(found=f"{count} of max_steps, max_tokens and max_epochs", expected="exactly one")

    def num_steps(self, num_rows: float, num_tokens: float, batch_size: int) -> int:
        """Return the number of optimiser steps of `batch_size` rows, at least 1.

        `num_rows` are the rows of a pass, `num_tokens` their tokens without special tokens and padding.
        """
        if self.max_steps is not None:
            return self.max_steps
        if self.max_epochs is not None:
            epochs = self.max_epochs
        else:
            assert self.max_tokens is not None
            epochs = self.max_tokens / num_tokens
        return max(1, math.ceil(epochs * num_rows / batch_size))


@dataclass(frozen=True, kw_only=True)
class CorpusTraining(CorpusDataSettings, ModuleSettings, Training):
    """Settings of a training on a prepared corpus."""

    budget: Budget
    """Length of the training: exactly one of the three settings."""

    seed: Seed = 0
    """Seed of new weights, data order, masks and dropout. Change it to continue on the same corpus."""

    validate_every: PositiveInt | None = None
    """Optimiser steps between validations; None validates ten times, or fewer in a short training."""

    def __post_init__(self) -> None:
        """Check `batch_size` and the phases; if the budget is `max_steps`, each phase must have a step."""
        self.check_micro_batches(self.batch_size)
        check_phases(self.phases, type(self).__name__)
        if self.budget.max_steps is not None:
            steps_of_phases(self.phases, self.budget.max_steps)

    @property
    def phases(self) -> tuple[LengthPhase, ...]:
        """Phases of the row length, in order."""
        return phases_of(self.max_length)

    @property
    def row_length(self) -> int:
        """Tokens of a row in the last phase, and in validation."""
        return self.phases[-1].length

    def num_steps(self, num_rows: Sequence[int], num_tokens: Sequence[float]) -> int:
        """Return the number of optimiser steps of the budget.

        `num_rows` and `num_tokens` (without special tokens and padding) are the rows and tokens of a pass in each
        phase.
        """
        # Passes are relative to a training with only the last phase. A pass has the mean number of tokens over
        # all passes: tokens are counted as differences from the last phase, so that a single phase is not rounded.
        total_passes = start = extra_tokens = 0.0
        batch_sizes = rows_per_step(self.phases, self.batch_size)
        for phase, size, rows, tokens in zip(self.phases, batch_sizes, num_rows, num_tokens, strict=True):
            end = phase.until or 1.0
            share_of_steps = end - start
            passes = share_of_steps * (size * num_rows[-1]) / (self.batch_size * rows)
            total_passes += passes
            extra_tokens += passes * (tokens - num_tokens[-1])
            start = end
        rows_per_pass = num_rows[-1] / total_passes
        tokens_per_pass = num_tokens[-1] + extra_tokens / total_passes
        return self.budget.num_steps(rows_per_pass, tokens_per_pass, self.batch_size)
