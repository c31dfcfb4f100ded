"""The one way a training runs: what watches it, its Trainer and batches, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lightning

from domainbert.data.types import TrainBatches, ValidationBatches
from domainbert.training.callbacks import History, KeepBest, ProgressLines, ValidateFirst
from domainbert.training.checkpoints import Checkpoints
from domainbert.training.config import Budget, Runtime
from domainbert.training.data_module import TrainAndValidation, share_of
from domainbert.training.module import TrainedModule
from domainbert.training.numbers import NumberWatch
from domainbert.training.trainer import build_trainer

_VALIDATIONS = 10


@dataclass(frozen=True)
class Steps:
    """The optimiser steps of a training.

    Attributes:
        total: how many.
        batch_size: rows or examples of one, over all devices.
        num_items: rows or examples of the training set.
        validate_every: optimiser steps between validations.
        validate_first: whether the model is validated before the first step, too.
    """

    total: int
    batch_size: int
    num_items: int
    validate_every: int
    validate_first: bool = False

    @classmethod
    def of_epochs(cls, num_epochs: int, batch_size: int, num_items: int) -> Steps:
        """Those of some passes over the training set, with a validation after each."""
        epoch = -(-num_items // batch_size)
        return cls(epoch * num_epochs, batch_size, num_items, epoch)

    @classmethod
    def of_budget(
        cls,
        budget: Budget,
        batch_size: int,
        num_items: int,
        num_tokens: int,
        validate_every: int | None,
        validate_first: bool = False,
    ) -> Steps:
        """Those of a budget over items with `num_tokens` tokens in all; ten validations unless told."""
        total = budget.num_steps(num_items, num_tokens, batch_size)
        every = max(1, total // _VALIDATIONS) if validate_every is None else validate_every
        return cls(total, batch_size, num_items, every, validate_first)

    def tokens_seen(self, num_tokens: int) -> int:
        """Tokens that the steps read of a training set with `num_tokens`."""
        return round(self.total * self.batch_size * num_tokens / self.num_items)


@dataclass(frozen=True)
class TrainingData:
    """Batches of a training.

    Attributes:
        train: the micro-batches of training for a rank and a range of optimiser steps.
        validations: the batches of each validation set for a rank.
        describe: what the global batch of an optimiser step (from 0) consists of, as plain values; it is written down
            where a loss is not finite.
    """

    train: TrainBatches
    validations: Sequence[ValidationBatches]
    describe: Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True)
class Fitted:
    """Outcome of a training.

    Attributes:
        validation: the metrics of the model that is kept, and its `step`.
        history: those of every validation.
        skipped_steps: optimiser steps that changed no weight, because loss or gradient were not finite.
        loss_spikes: steps at which the loss jumped.
        micro_batch_size: rows or examples that a device computed at once.
    """

    validation: dict[str, float]
    history: list[dict[str, float]]
    skipped_steps: list[int]
    loss_spikes: list[int]
    micro_batch_size: int

    @property
    def facts(self) -> dict[str, Any]:
        """The part of `metrics` that every training reports and that depends on no clock or device."""
        names = ("validation", "history", "skipped_steps", "loss_spikes")
        return {name: getattr(self, name) for name in names}


def fit(
    label: str,
    module: TrainedModule,
    data: TrainingData,
    steps: Steps,
    runtime: Runtime,
    best: KeepBest | None = None,
    monitor: str | None = None,
    watch: Sequence[lightning.Callback] = (),
) -> Fitted:
    """Train a module, from its newest checkpoint if there is one, and leave the weights to keep in it.

    Args:
        label: what is trained, for the lines of progress.
        module: the model with its loss, optimiser and schedule.
        data: what it reads.
        steps: for how long.
        runtime: where and with what.
        best: which validation is kept, and how soon to stop; None keeps the last one.
        monitor: a validation metric by which the best checkpoint stays on the disk, see `Checkpoints`.
        watch: further callbacks.

    Raises:
        TrainingFailed: the last validation loss is not finite, or three steps in a row were not.
        TrainingStopped: a signal ended it; the state is saved.
    """
    history, numbers = History(), NumberWatch(runtime.out, data.describe)
    progress = ProgressLines(label, steps.total)
    checkpoints = Checkpoints(runtime.out, runtime.checkpoint_every, monitor)
    callbacks = [history, *([] if best is None else [best]), *watch, numbers, progress, checkpoints]
    callbacks += [ValidateFirst()] if steps.validate_first else []  # when `Checkpoints` has taken the signals over
    trainer = build_trainer(runtime, steps.total, steps.batch_size, steps.validate_every, callbacks)
    num_parameters = sum(parameter.numel() for parameter in module.model.parameters())
    print(
        f"{label}: {num_parameters:,} parameters; {steps.total:,} steps of {steps.batch_size}, "
        f"{steps.total * steps.batch_size / steps.num_items:.2f} epochs of {steps.num_items:,}; "
        f"precision {trainer.precision}"
    )
    batches = TrainAndValidation(data.train, data.validations, steps.total, runtime.num_workers)
    trainer.fit(module, datamodule=batches)
    kept = history.last
    if best is not None:
        best.restore(module)
        kept = next(row for row in history.rows if row["step"] == best.best_step)
    rows_at_once = share_of(trainer).micro_batch_size(steps.batch_size)
    return Fitted(kept, history.rows, numbers.skipped_steps, numbers.loss_spikes, rows_at_once)
