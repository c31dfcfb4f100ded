"""Settings of trainings: how long, on what, with which loggers. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from domainbert.base.errors import DomainbertError, Problems
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

_EXTRAS = ("wandb", "mlflow")  # loggers that are called like the package they need


def need_logger(name: LoggerName) -> None:
    """`DomainbertError` if a logger's package is not installed; it names the extra."""
    if name in _EXTRAS and not is_installed(name):
        raise DomainbertError(f"loggers: {name} is not installed; pip install 'domainbert[{name}]'")


@dataclass(frozen=True)
class Runtime:
    """Devices, files and precision of a training: nothing here decides what is learnt, but for rounding."""

    out: Path
    precision: Precision
    micro_batch_size: MicroBatchSize
    num_workers: int | None
    loggers: Sequence[LoggerName]
    trainer: Mapping[str, Any]
    checkpoint_every: int | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings that every training has; a stage that trains inherits it, and says anew what it means otherwise."""

    precision: Precision = "auto"
    """`auto` is bf16-mixed on hardware good at it (GPUs, CPUs with AMX, AMD's with AVX512-BF16), else 32-true."""

    micro_batch_size: MicroBatchSize = field(default=None, metadata=SPEED_ONLY)
    """Rows a device computes at once; None takes its share of the batch. Smaller needs less memory; on a GPU
    `auto` takes as many as fit, which it tries before the first step."""

    activation_checkpointing: bool = field(default=False, metadata=SPEED_ONLY)
    """Keep only what goes into each layer, and compute the layer again in the backward pass: a third more arithmetic, a
    fraction of the memory, and the same result."""

    num_workers: Workers | None = field(default=None, metadata=SPEED_ONLY)
    """Processes that build batches beside the training process; None builds them in a thread on a GPU, and in turn with
    the steps on a CPU. The batches do not depend on it."""

    loggers: tuple[LoggerName, ...] = field(default=("jsonl", "tensorboard"), metadata=SPEED_ONLY)
    """Destinations of metrics; `wandb` and `mlflow` need the extra of that name."""

    checkpoint_every: PositiveInt | None = field(default=None, metadata=SPEED_ONLY)
    """Optimiser steps between checkpoints; None writes one every ten minutes. One is written after each validation and
    when a signal ends the training, too."""

    trainer: dict[str, Any] | None = None
    """Other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy`, ..."""

    card: CardConfig = field(default_factory=CardConfig, metadata=SPEED_ONLY)
    """Content of the model card beside what is known: licence, languages, data sets, tags."""

    def check_micro_batches(self, batch_size: int) -> None:
        """`DomainbertError` if no number of devices divides a batch into micro-batches of the size asked for."""
        size = self.micro_batch_size
        if isinstance(size, int) and batch_size % size:
            raise DomainbertError(f"micro_batch_size: found {size}; expected a divisor of batch_size, {batch_size}")

    def runtime(self, out: Path) -> Runtime:
        """The runtime of the training that writes `out`."""
        given = (self.precision, self.micro_batch_size, self.num_workers, self.loggers, self.trainer or {})
        return Runtime(out, *given, self.checkpoint_every)


@dataclass(frozen=True)
class Budget:
    """Length of a pretraining: exactly one of the three is given."""

    max_steps: PositiveInt | None = None
    """Optimiser steps."""

    max_tokens: Annotated[int, Range(1, 10**15)] | None = None
    """Tokens seen, without special tokens and padding."""

    max_epochs: Annotated[float, Range(0, 1e6, above=True)] | None = None
    """Passes over the training split."""

    def __post_init__(self) -> None:
        """Check that one is given, and that it is in its range."""
        check_fields(self)
        given = sum(value is not None for value in (self.max_steps, self.max_tokens, self.max_epochs))
        if given != 1:
            raise DomainbertError(f"{given} of max_steps, max_tokens and max_epochs are given; expected exactly one")

    def num_steps(self, num_rows: float, num_tokens: float, batch_size: int) -> int:
        """Optimiser steps of `batch_size` rows, for `num_rows` with `num_tokens` in all, special tokens and padding
        apart."""
        if self.max_steps is not None:
            return self.max_steps
        epochs = self.max_epochs if self.max_epochs is not None else (self.max_tokens or 0) / num_tokens
        return max(1, math.ceil(epochs * num_rows / batch_size))


@dataclass(frozen=True, kw_only=True)
class CorpusTraining(Training):
    """Settings of a training on a prepared corpus."""

    budget: Budget
    """Length of the training; exactly one of the three is given."""

    max_length: MaxLength = 128
    """Tokens of a row, [CLS] and [SEP] included; or a list of phases, in which rows grow longer."""

    batch_size: BatchSize = 64
    """Rows of an optimiser step, over all devices; in phases before the last, as many as hold the same tokens."""

    dropout: Dropout | None = None
    """Dropout of the model during this stage; the model folder keeps its own. None leaves it as it is."""

    optim: OptimConfig = OptimConfig()
    """Optimiser."""

    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate over the steps."""

    validate_every: PositiveInt | None = None
    """Optimiser steps between validations; None validates ten times, in a short training fewer."""

    cache: CacheConfig | None = field(default=None, metadata=SPEED_ONLY)
    """Folder of this machine for what is read of a corpus whose parts are at a URL (see `merge`), and its size:
    {folder: /local/law, gigabytes: 100}."""

    def __post_init__(self) -> None:
        """Check that the phases follow each other, and that each has a step, where the budget tells."""
        self.check_micro_batches(self.batch_size)
        problems = Problems(type(self).__name__)
        for problem in phase_problems(self.phases):
            problems.add(problem)
        problems.raise_if_any()
        if self.budget.max_steps is not None:
            steps_of_phases(self.phases, self.budget.max_steps)

    @property
    def phases(self) -> tuple[LengthPhase, ...]:
        """The phases of the row length, in order."""
        return phases_of(self.max_length)

    @property
    def row_length(self) -> int:
        """Tokens of a row in the last phase, and in validation."""
        return self.phases[-1].length

    def rows_of_step(self, phase: LengthPhase) -> int:
        """Rows of an optimiser step in a phase: all steps hold equally many tokens, padding included."""
        return self.batch_size * (self.row_length // phase.length)

    def num_steps(self, num_rows: Sequence[int], num_tokens: Sequence[float]) -> int:
        """Optimiser steps of the budget, for `num_rows` in each phase, with `num_tokens` in all of its rows, special
        tokens and padding apart."""
        pace = start = more = 0.0  # pace: of a mean step, beside one of the last phase, in passes; 1 for a single phase
        for phase, rows, tokens in zip(self.phases, num_rows, num_tokens, strict=True):
            end = phase.until or 1.0
            passes = (end - start) * (self.rows_of_step(phase) * num_rows[-1]) / (self.batch_size * rows)
            pace, more, start = pace + passes, more + passes * (tokens - num_tokens[-1]), end
        return self.budget.num_steps(num_rows[-1] / pace, num_tokens[-1] + more / pace, self.batch_size)
