"""Settings of how long and on what to train. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import BatchSize, PositiveInt, Range, check_fields

Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]
MicroBatchSize = BatchSize | Literal["auto"] | None
LoggerName = Literal["jsonl", "tensorboard", "wandb", "mlflow"]


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
        given = [value for value in (self.max_steps, self.max_tokens, self.max_epochs) if value is not None]
        if len(given) != 1:
            raise DomainbertError(
                f"{len(given)} of max_steps, max_tokens and max_epochs are given; expected exactly one"
            )

    def num_steps(self, num_rows: int, num_tokens: int, batch_size: int) -> int:
        """Optimiser steps.

        Args:
            num_rows: rows of the training split.
            num_tokens: its tokens, without special tokens and padding.
            batch_size: rows of a global batch.
        """
        if self.max_steps is not None:
            return self.max_steps
        epochs = self.max_epochs if self.max_epochs is not None else (self.max_tokens or 0) / num_tokens
        return max(1, math.ceil(epochs * num_rows / batch_size))


@dataclass(frozen=True)
class Runtime:
    """Devices, files and precision of a training: nothing here decides what is learnt, but for rounding."""

    out: Path
    precision: Precision
    micro_batch_size: MicroBatchSize
    num_workers: int
    loggers: Sequence[LoggerName]
    trainer: Mapping[str, Any]
    checkpoint_every: int | None = None
