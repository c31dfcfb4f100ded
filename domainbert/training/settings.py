"""Settings that every training has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from domainbert.base.ranges import PositiveInt, Workers
from domainbert.settings.schema import SPEED_ONLY
from domainbert.training.config import LoggerName, MicroBatchSize, Precision, Runtime


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings that every training has; a stage that trains inherits it, and says anew what it means otherwise."""

    precision: Precision = "auto"
    """`auto` is bf16-mixed on hardware good at it (GPUs, CPUs with AMX or AVX512-BF16), else 32-true."""

    micro_batch_size: MicroBatchSize = field(default=None, metadata=SPEED_ONLY)
    """Rows a device computes at once; None takes its share of the batch. Smaller needs less memory; `auto` takes as
    many as fit: a GPU tries it before the first step, for a CPU it is estimated."""

    activation_checkpointing: bool = field(default=False, metadata=SPEED_ONLY)
    """Keep only what goes into each layer, and compute the layer again in the backward pass: a third more arithmetic, a
    fraction of the memory, and the same result."""

    num_workers: Workers = field(default=0, metadata=SPEED_ONLY)
    """Processes that build batches beside the training process."""

    loggers: tuple[LoggerName, ...] = field(default=("jsonl", "tensorboard"), metadata=SPEED_ONLY)
    """Where metrics go; `wandb` and `mlflow` need the extra of that name."""

    checkpoint_every: PositiveInt | None = field(default=None, metadata=SPEED_ONLY)
    """Optimiser steps between checkpoints; None writes one every ten minutes. One is written after each validation and
    when a signal ends the training, too."""

    trainer: dict[str, Any] | None = None
    """Other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy`, ..."""

    def runtime(self, out: Path) -> Runtime:
        """The runtime of the training that writes `out`."""
        given = (self.precision, self.micro_batch_size, self.num_workers, self.loggers, self.trainer or {})
        return Runtime(out, *given, self.checkpoint_every)
