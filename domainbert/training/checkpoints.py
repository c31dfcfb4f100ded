"""Saves a training so that it can be ended at any point, and resumed from the newest checkpoint."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.base.signals import StopSignals
from domainbert.training.checkpoint_files import FOLDER, Checkpoint, check_room, newest_checkpoint, write_checkpoint
from domainbert.training.metrics_file import MetricsFile
from domainbert.training.processes import highest
from domainbert.training.state import can_be_saved, load_training_state, training_state

_SECONDS = 600.0
_CHEAP_SECONDS = 0.1
_SHARE = 0.05  # of the time of training that saving after a validation may take, or those seconds
_SAVE = 1  # what the processes agree on between two steps; higher numbers are signals, and ask for a stop
_STOP = 1000
_FLOATS_OF_A_WEIGHT = 3  # itself and the optimiser's two running means


class Checkpoints(Callback):
    """Writes checkpoints between two steps, obeys signals there, and restores the newest checkpoint at the start.

    Between two steps, which is when the next batch is at hand, everything about the step before is complete: logs and
    validation too. Stands last among the callbacks, so that the others' states are those after that step.

    Args:
        out: the folder of the training; checkpoints stand in `checkpoints` in it.
        every: optimiser steps between checkpoints; None writes one every ten minutes. After a validation, too, where
            saving is cheap (`_SHARE`).
        monitor: a validation metric, lower is better: each validation is saved, and the best checkpoint by it stays.
    """

    def __init__(self, out: Path, every: int | None = None, monitor: str | None = None) -> None:
        self.folder, self.every, self.monitor = out / FOLDER, every, monitor
        self._found: Checkpoint | None = None
        self._signals = StopSignals()
        self._saved_at, self._saved_step = 0.0, 0
        self._save_seconds = 0.0
        self._validated = False
        self._score: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the checkpoint to resume from: the first process does, for all."""
        if stage != "fit":
            return
        found = None
        if trainer.is_global_zero:
            weights = sum(parameter.numel() * 4 for parameter in pl_module.parameters())
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            check_room(self.folder.parent, _FLOATS_OF_A_WEIGHT * weights, weights)
            found = newest_checkpoint(self.folder, print)
        self._found = trainer.strategy.broadcast(found)

    def on_fit_start(self, trainer: Trainer, *_: Any) -> None:
        """Restore it."""
        if self._found is not None:
            load_training_state(trainer, self._found.state)
            print(f"going on from step {self._found.step:,} ({self._found.path})", flush=True)
        for logger in trainer.loggers:
            if isinstance(logger, MetricsFile):
                logger.go_on_from(trainer.global_step)
        self._saved_step = trainer.global_step

    def on_train_start(self, *_: Any) -> None:
        """Take the signals over from Lightning, which would end the process with exit code 0 and save nothing."""
        self._signals.install()
        self._saved_at = time.monotonic()

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        """Note the score; before the first step there is nothing to keep."""
        self._validated = trainer.global_step > 0
        if self.monitor is not None and self._validated:
            self._score = float(trainer.callback_metrics[self.monitor])

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Between two steps: agree whether to save or to stop, and do it."""
        if batch_idx % trainer.accumulate_grad_batches:
            return
        if not can_be_saved(trainer):
            if trainer.global_step and (asked := highest(self._signal())):
                raise TrainingStopped(f"stopped by {_name(asked)} before a state could be saved; it begins anew")
            return
        asked = highest(self._asks(trainer))
        if asked and trainer.global_step > self._saved_step:
            self._save(trainer, must=asked >= _STOP)
        self._validated, self._score = False, None
        if asked >= _STOP:
            step = trainer.global_step
            raise TrainingStopped(f"stopped by {_name(asked)} after step {step:,}; the state is saved")

    def on_exception(self, *_: Any) -> None:
        """The training ends, by a signal or otherwise: none is left for the next one."""
        self._signals.obey()

    def _asks(self, trainer: Trainer) -> int:
        """This process's request to all."""
        if stop := self._signal():
            return stop
        since, first = time.monotonic() - self._saved_at, trainer.is_global_zero
        cheap = self._save_seconds <= max(_CHEAP_SECONDS, _SHARE * since)
        if self._score is not None or (self._validated and first and cheap):
            return _SAVE
        if self.every is not None:
            return _SAVE * (trainer.global_step % self.every == 0)
        return _SAVE * (first and since >= _SECONDS)

    def _signal(self) -> int:
        """The request to stop that this process has got; 0 for none."""
        return _STOP + self._signals.received if self._signals.received else 0

    def _save(self, trainer: Trainer, must: bool) -> None:
        """Write a checkpoint. A full disk ends the training only when it has to stop anyway."""
        start = time.perf_counter()
        state, step = training_state(trainer), trainer.global_step
        failure = ""
        if trainer.is_global_zero:
            try:
                write_checkpoint(self.folder, step, _num_bytes(state), lambda path: _write(state, path), self._score)
            except DomainbertError as error:
                failure = str(error)
        failure = trainer.strategy.broadcast(failure)
        if failure and must:
            raise DomainbertError(failure)
        if failure:
            print(f"warning: {failure}; the training goes on", flush=True)
        else:
            self._saved_step = step
        self._saved_at, self._save_seconds = time.monotonic(), time.perf_counter() - start


def _name(asked: int) -> str:
    return signal.Signals(asked - _STOP).name


def _write(state: dict[str, Any], path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(state, file)


def _num_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(_num_bytes(child) for child in children)
