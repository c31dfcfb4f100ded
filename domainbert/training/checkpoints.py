"""Checkpoint callback: saves Lightning's checkpoints at intervals, and stops on signals."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import ModelParallelStrategy

from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.base.process import StopSignals, launched_by_domainbert
from domainbert.training.checkpoint_files import FOLDER, check_disk_space, write_checkpoint
from domainbert.training.lightning_internals import dump_checkpoint
from domainbert.training.processes import all_reduce_max
from domainbert.training.sharding import optimizer_parts
from domainbert.training.trainer import MetricsFile

_DEFAULT_INTERVAL = 600.0  # seconds between checkpoints
# each validation is saved if saving takes at most this share of the time since the last checkpoint, or these seconds
_CHEAP_SHARE, _CHEAP_SECONDS = 0.05, 0.1
# requests of a process (0: none), of which the largest counts: save; save and stop (plus the number of a signal)
_SAVE, _STOP = 1, 1000
_FLOATS_PER_WEIGHT = 3  # the weight and two optimiser moments


class Checkpoints(Checkpoint):
    """Callback that writes checkpoints of Lightning and handles signals between two steps.

        trainer = Trainer(callbacks=[Checkpoints("runs/tagger")], ...)
        trainer.fit(module, data, ckpt_path=newest_checkpoint(...).file)

    It acts when the next batch has arrived: logs and validation of the previous step are complete. Lightning calls it
    after all other callbacks, so that their states include the previous step.

    Args:
        out: folder of the training; checkpoints go to its subfolder `checkpoints`.
        every: optimiser steps between checkpoints; None writes one every ten minutes. Also saves after a validation if
            saving is cheap (`_CHEAP_SHARE`).
        monitor: validation metric, lower is better: each validation is saved, and the best checkpoint is kept.
    """

    def __init__(self, out: str | Path, every: int | None = None, monitor: str | None = None) -> None:
        self.folder, self.every, self.monitor = Path(out) / FOLDER, every, monitor
        self._signals = StopSignals()
        self._saved_at, self._saved_step, self._first_step = 0.0, 0, 0
        self._save_seconds = 0.0
        self._validated = False
        self._score: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check the free disk space."""
        if stage == "fit" and trainer.is_global_zero:
            weight_bytes = sum(parameter.numel() * 4 for parameter in pl_module.parameters())
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            check_disk_space(
                self.folder.parent, checkpoint_bytes=_FLOATS_PER_WEIGHT * weight_bytes, model_bytes=weight_bytes
            )

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        """Delete the metrics logged after the first step. Replace Lightning's signal handlers, which would exit with
        code 0 without saving. Raise `DomainbertError` if the processes resume from different checkpoints."""
        step = trainer.global_step
        newest, oldest = all_reduce_max(step), -all_reduce_max(-step)
        if newest != oldest:
            found = "the processes found different checkpoints"
            raise DomainbertError(found, file=self.folder, expected="a folder that all nodes share")
        for logger in trainer.loggers:
            if isinstance(logger, MetricsFile):
                logger.truncate_after(step)
        self._first_step = self._saved_step = step
        self._signals.has_deadline = not launched_by_domainbert()  # such a process ends with the first process
        self._signals.install()
        self._saved_at = time.monotonic()

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        """Record that a validation ended, and its score if there is a `monitor`.

        Ignore a validation before the first step: there is nothing to save.
        """
        self._validated = trainer.global_step > 0
        if self.monitor is not None and self._validated:
            self._score = float(trainer.callback_metrics[self.monitor])

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Save, or save and stop, if any process requests it; only between optimiser steps."""
        if batch_idx % trainer.accumulate_grad_batches:  # within an optimiser step
            return
        self._signals.has_deadline &= trainer.global_step == self._first_step
        if not can_be_saved(trainer):
            # at step 0 a signal waits for the end of the first step
            request = all_reduce_max(self._stop_request()) if trainer.global_step else 0
            if request:
                raise TrainingStopped(
                    f"stopped by {_signal_name(request)} before a state could be saved; the next run starts from the "
                    "beginning"
                )
            return
        request = all_reduce_max(self._save_or_stop_request(trainer))
        step, must_stop = trainer.global_step, request >= _STOP
        if request and step > self._saved_step:
            self._save(trainer, required=must_stop)
        self._validated, self._score = False, None  # until the next validation
        if must_stop:
            raise TrainingStopped(f"stopped by {_signal_name(request)} after step {step:,}; the state is saved")

    def on_exception(self, *_: Any) -> None:
        """Forget a received signal, so that it does not stop the next training."""
        self._signals.clear()

    def _save_or_stop_request(self, trainer: Trainer) -> int:
        """Return the request of this process: `_STOP` plus a signal number, `_SAVE`, or 0. `_SAVE`: after a validation
        with a score, after a validation if saving is cheap, or if the interval is over."""
        if stop := self._stop_request():
            return stop
        # only the first process measures time: the clocks of the processes differ
        seconds, is_first = time.monotonic() - self._saved_at, trainer.is_global_zero
        is_cheap = self._save_seconds <= max(_CHEAP_SECONDS, _CHEAP_SHARE * seconds)
        if self._score is not None or (self._validated and is_first and is_cheap):
            return _SAVE
        if self.every is not None:
            return _SAVE if trainer.global_step % self.every == 0 else 0
        return _SAVE if is_first and seconds >= _DEFAULT_INTERVAL else 0

    def _stop_request(self) -> int:
        return _STOP + self._signals.received if self._signals.received else 0

    def _save(self, trainer: Trainer, required: bool) -> None:
        start = time.perf_counter()
        state, step = dump_checkpoint(trainer), trainer.global_step
        failure: DomainbertError | None = None  # of a write, for all processes
        if trainer.is_global_zero:
            try:
                write_checkpoint(
                    self.folder, step, _num_bytes(state), lambda path: _write_state(state, path), self._score
                )
            except DomainbertError as error:
                failure = error
        failure = trainer.strategy.broadcast(failure)
        if failure and required:
            raise failure
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
    if isinstance(value, dict):
        value = tuple(value.values())
    return sum(map(_num_bytes, value)) if isinstance(value, (list, tuple)) else 0


def can_be_saved(trainer: Trainer) -> bool:
    """Return whether a checkpoint can be written: after the first optimiser step.

    With a sharded model, each optimiser must have a state: an optimiser whose steps were all skipped has none, and
    torch would invent one.
    """
    if trainer.global_step == 0:
        return False
    if not isinstance(trainer.strategy, ModelParallelStrategy):
        return True
    parts = [part for optimizer in trainer.optimizers for part in optimizer_parts(optimizer)]
    return all(part.state for part in parts)
