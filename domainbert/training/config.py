"""Training settings: length, batches, runtime, loggers. This module does not import torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from domainbert.base.errors import DomainbertError, Problems, needs_package
from domainbert.base.marks import SPEED_ONLY
from domainbert.base.paths import is_installed
from domainbert.base.ranges import BatchSize, Dropout, PositiveInt, Range, Workers
from domainbert.base.validation import check_fields
from domainbert.data.remote_files import CacheConfig
from domainbert.models.card_config import CardConfig
from domainbert.training.length_phases import LengthPhase, MaxLength, phase_problems, phases_of, steps_of_phases
from domainbert.training.optim_config import OptimConfig, ScheduleConfig

Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
MicroBatchSize = BatchSize | Literal["auto"] | None
LoggerName = Literal["jsonl", "tensorboard", "wandb", "mlflow"]

_EXTRAS = ("wandb", "mlflow")  # loggers that need the package of the same name


def check_logger_installed(name: LoggerName) -> None:
    """Raise `DomainbertError`, which names the extra, if the package of a logger is not installed."""
    if name in _EXTRAS and not is_installed(name):
        raise DomainbertError(f"loggers: {needs_package(name, name)}")


@dataclass(frozen=True)
class Runtime:
    """Output folder, precision, devices and loggers of a training. They change its result only by rounding."""

    out: Path
    precision: Precision
    micro_batch_size: MicroBatchSize
    num_workers: int | None
    loggers: Sequence[LoggerName]
    trainer: Mapping[str, Any]
    checkpoint_every: int | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of every training. Stages that train inherit them, and override docstrings where the meaning differs."""

    precision: Precision = "auto"
    """`auto` is bf16-mixed where bf16 is fast (GPUs, CPUs with AMX, AMD CPUs with AVX512-BF16), else 32-true."""

    micro_batch_size: MicroBatchSize = field(default=None, metadata=SPEED_ONLY)
    """Rows that a device computes at once; None takes its share of the batch. Smaller values need less memory. On a GPU
    `auto` takes the largest size that fits, which it determines before the first step."""

    activation_checkpointing: bool = field(default=False, metadata=SPEED_ONLY)
    """Keep only the input of each layer, and recompute the layer in the backward pass: a third more computation, a
    fraction of the memory, the same result."""

    num_workers: Workers | None = field(default=None, metadata=SPEED_ONLY)
    """Worker processes that build batches. None uses a thread for a GPU; on a CPU, the training process builds each
    batch before its step. The batches do not depend on it."""

    loggers: tuple[LoggerName, ...] = field(default=("jsonl", "tensorboard"), metadata=SPEED_ONLY)
    """Loggers of metrics; `wandb` and `mlflow` need the extra of the same name."""

    checkpoint_every: PositiveInt | None = field(default=None, metadata=SPEED_ONLY)
    """Optimiser steps between checkpoints; None writes a checkpoint every ten minutes. Validations and signals that end
    the training write a checkpoint, too."""

    trainer: dict[str, Any] | None = None
    """Other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy`, ..."""

    card: CardConfig = field(default_factory=CardConfig, metadata=SPEED_ONLY)
    """Additional content of the model card: licence, languages, data sets, tags."""

    def check_micro_batches(self, batch_size: int) -> None:
        """Raise `DomainbertError` if `micro_batch_size` does not divide the batch size."""
        size = self.micro_batch_size
        if isinstance(size, int) and batch_size % size:
            raise DomainbertError(f"micro_batch_size: found {size}; expected a divisor of batch_size, {batch_size}")

    def runtime(self, out: Path) -> Runtime:
        """Return the `Runtime` of a training that writes to `out`."""
        arguments = (self.precision, self.micro_batch_size, self.num_workers, self.loggers, self.trainer or {})
        return Runtime(out, *arguments, self.checkpoint_every)


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
            raise DomainbertError(f"found {count} of max_steps, max_tokens and max_epochs; expected exactly one")

    def num_steps(self, num_rows: float, num_tokens: float, batch_size: int) -> int:
        """Return the number of optimiser steps of `batch_size` rows.

        `num_rows` are the rows of a pass, `num_tokens` their tokens without special tokens and padding.
        """
        if self.max_steps is not None:
            return self.max_steps
        epochs = self.max_epochs if self.max_epochs is not None else (self.max_tokens or 0) / num_tokens
        return max(1, math.ceil(epochs * num_rows / batch_size))


@dataclass(frozen=True, kw_only=True)
class CorpusTraining(Training):
    """Settings of a training on a prepared corpus."""

    budget: Budget
    """Length of the training: exactly one of the three settings."""

    max_length: MaxLength = 128
    """Tokens per row, including [CLS] and [SEP]; or a list of phases with increasing lengths."""

    batch_size: BatchSize = 64
    """Rows per optimiser step, over all devices; phases with shorter rows have more rows, so that tokens stay equal."""

    dropout: Dropout | None = None
    """Override the dropout of the model during this stage; the model folder keeps its own. None does not override."""

    optim: OptimConfig = OptimConfig()
    """Optimiser."""

    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate over the steps."""

    validate_every: PositiveInt | None = None
    """Optimiser steps between validations; None validates ten times, or fewer in a short training."""

    cache: CacheConfig | None = field(default=None, metadata=SPEED_ONLY)
    """Local folder, and its maximum size, that caches a corpus whose parts are at a URL (see `merge`):
    {folder: /local/law, gigabytes: 100}."""

    def __post_init__(self) -> None:
        """Check the order of the phases, and that each has a step if the budget is `max_steps`."""
        self.check_micro_batches(self.batch_size)
        problems = Problems(type(self).__name__)
        for problem in phase_problems(self.phases):
            problems.add(problem)
        problems.raise_if_any()
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

    def rows_of_step(self, phase: LengthPhase) -> int:
        """Return the number of rows of an optimiser step in a phase: all steps have equally many tokens, with
        padding."""
        return self.batch_size * (self.row_length // phase.length)

    def num_steps(self, num_rows: Sequence[int], num_tokens: Sequence[float]) -> int:
        """Return the number of optimiser steps of the budget.

        `num_rows` and `num_tokens` (without special tokens and padding) are the rows and tokens of a pass in each
        phase.
        """
        # a mean step makes `pace` times the share of a pass that a step of the last phase makes; 1 for a single phase
        pace = start = extra_tokens = 0.0
        for phase, rows, tokens in zip(self.phases, num_rows, num_tokens, strict=True):
            end = phase.until or 1.0
            passes = (end - start) * (self.rows_of_step(phase) * num_rows[-1]) / (self.batch_size * rows)
            pace, extra_tokens, start = pace + passes, extra_tokens + passes * (tokens - num_tokens[-1]), end
        return self.budget.num_steps(num_rows[-1] / pace, num_tokens[-1] + extra_tokens / pace, self.batch_size)
