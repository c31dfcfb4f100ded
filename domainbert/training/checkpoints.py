"""Checkpoint callback: saves the training state, stops on signals, resumes from the newest checkpoint."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.base.signals import StopSignals
from domainbert.training.checkpoint_files import (
    FOLDER,
    Checkpoint,
    check_disk_space,
    newest_checkpoint,
    write_checkpoint,
)
from domainbert.training.metrics_file import MetricsFile
from domainbert.training.processes import all_reduce_max
from domainbert.training.state import can_be_saved, load_training_state, training_state

_DEFAULT_INTERVAL = 600.0  # seconds between checkpoints
# each validation is saved if saving takes at most this share of the time since the last checkpoint, or these seconds
_CHEAP_SHARE, _CHEAP_SECONDS = 0.05, 0.1
_SAVE = 1  # request of a process to save; the processes take the largest request
_STOP = 1000  # plus the number of a signal: request to save and stop
_FLOATS_PER_WEIGHT = 3  # the weight and two optimiser moments


class Checkpoints(Callback):
    """Callback that writes checkpoints and handles signals between two steps; restores the newest checkpoint at the
    start.

    It acts when the next batch has arrived: logs and validation of the previous step are complete. Must be the last
    callback, so that the states of the others include the previous step.

    Args:
        out: folder of the training; checkpoints go to its subfolder `checkpoints`.
        every: optimiser steps between checkpoints; None writes one every ten minutes. Also saves after a validation if
            saving is cheap (`_CHEAP_SHARE`).
        monitor: validation metric, lower is better: each validation is saved, and the best checkpoint is kept.
    """

    def __init__(self, out: Path, every: int | None = None, monitor: str | None = None) -> None:
        self.folder, self.every, self.monitor = out / FOLDER, every, monitor
        self._newest: Checkpoint | None = None
        self._signals = StopSignals()
        self._saved_at, self._saved_step = 0.0, 0
        self._save_seconds = 0.0
        self._validated = False
        self._score: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the checkpoint to resume from, in the first process for all; check the room on the disk."""
        if stage != "fit":
            return
        newest = None
        if trainer.is_global_zero:
            weights = sum(parameter.numel() * 4 for parameter in pl_module.parameters())
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            check_disk_space(self.folder.parent, _FLOATS_PER_WEIGHT * weights, weights)
            newest = newest_checkpoint(self.folder, print)
        self._newest = trainer.strategy.broadcast(newest)

    def on_fit_start(self, trainer: Trainer, *_: Any) -> None:
        """Restore the newest checkpoint, if any, and delete the logged metrics after its step (all without a
        checkpoint)."""
        if self._newest is not None:
            load_training_state(trainer, self._newest.state)
            print(f"resuming from step {self._newest.step:,} ({self._newest.path})", flush=True)
        for logger in trainer.loggers:
            if isinstance(logger, MetricsFile):
                logger.truncate_after(trainer.global_step)
        self._saved_step = trainer.global_step

    def on_train_start(self, *_: Any) -> None:
        """Replace Lightning's signal handlers, which would exit with code 0 without saving."""
        self._signals.install()
        self._saved_at = time.monotonic()

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        """Record the score, except before the first step, where there is nothing to save."""
        self._validated = trainer.global_step > 0
        if self.monitor is not None and self._validated:
            self._score = float(trainer.callback_metrics[self.monitor])

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Save or stop if any process requests it; acts only between two optimiser steps."""
        if batch_idx % trainer.accumulate_grad_batches:
            return
        if not can_be_saved(trainer):
            if trainer.global_step and (request := all_reduce_max(self._stop_request())):
                message = "before a state could be saved; the next run starts from the beginning"
                raise TrainingStopped(f"stopped by {_signal_name(request)} {message}")
            return
        request = all_reduce_max(self._find_request(trainer))
        if request and trainer.global_step > self._saved_step:
            self._save(trainer, required=request >= _STOP)
        self._validated, self._score = False, None
        if request >= _STOP:
            step = trainer.global_step
            raise TrainingStopped(f"stopped by {_signal_name(request)} after step {step:,}; the state is saved")

    def on_exception(self, *_: Any) -> None:
        """Handle pending signals, so that none remains for the next training."""
        self._signals.clear()

    def _find_request(self, trainer: Trainer) -> int:
        """Return the request of this process: to stop, `_SAVE`, or 0."""
        if stop := self._stop_request():
            return stop
        since, is_first = time.monotonic() - self._saved_at, trainer.is_global_zero
        cheap = self._save_seconds <= max(_CHEAP_SECONDS, _CHEAP_SHARE * since)
        if self._score is not None or (self._validated and is_first and cheap):
            return _SAVE
        if self.every is not None:
            return _SAVE * (trainer.global_step % self.every == 0)
        return _SAVE * (is_first and since >= _DEFAULT_INTERVAL)

    def _stop_request(self) -> int:
        """Return the stop request of this process; 0 if it received no signal."""
        return _STOP + self._signals.received if self._signals.received else 0

    def _save(self, trainer: Trainer, required: bool) -> None:
        """Write a checkpoint. A failed write is an error only if `required`, else a warning."""
        start = time.perf_counter()
        state, step = training_state(trainer), trainer.global_step
        failure = ""
        if trainer.is_global_zero:
            try:
                write_checkpoint(
                    self.folder, step, _num_bytes(state), lambda path: _write_state(state, path), self._score
                )
            except DomainbertError as error:
                failure = str(error)
        failure = trainer.strategy.broadcast(failure)
        if failure and required:
            raise DomainbertError(failure)
        if failure:
            print(f"warning: {failure}; the training continues", flush=True)
        else:
            self._saved_step = step
        self._saved_at, self._save_seconds = time.monotonic(), time.perf_counter() - start


def _signal_name(request: int) -> str:
    return signal.Signals(request - _STOP).name


def _write_state(state: dict[str, Any], path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(state, file)


def _num_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(_num_bytes(child) for child in children)
