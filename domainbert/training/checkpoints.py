"""Checkpoint callback: saves the training state, stops on signals, resumes from the newest checkpoint."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.base.process import StopSignals, launched_by_domainbert
from domainbert.training.checkpoint_files import (
    FOLDER,
    Checkpoint,
    check_disk_space,
    newest_checkpoint,
    write_checkpoint,
)
from domainbert.training.lightning_internals import set_progress
from domainbert.training.optimisers import CombinedOptimizer
from domainbert.training.processes import all_reduce_max
from domainbert.training.trainer import MetricsFile

_DEFAULT_INTERVAL = 600.0  # seconds between checkpoints
# each validation is saved if saving takes at most this share of the time since the last checkpoint, or these seconds
_CHEAP_SHARE, _CHEAP_SECONDS = 0.05, 0.1
# requests of a process (0: none), of which the largest counts: save; save and stop (plus the number of a signal)
_SAVE, _STOP = 1, 1000
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
        self._saved_at, self._saved_step, self._first_step = 0.0, 0, 0
        self._save_seconds = 0.0
        self._validated = False
        self._score: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check the free disk space, and choose the checkpoint to resume from: the first process chooses for all."""
        if stage != "fit":
            return
        newest = None
        if trainer.is_global_zero:
            weight_bytes = sum(parameter.numel() * 4 for parameter in pl_module.parameters())
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            check_disk_space(
                self.folder.parent, checkpoint_bytes=_FLOATS_PER_WEIGHT * weight_bytes, model_bytes=weight_bytes
            )
            newest = newest_checkpoint(self.folder, print)
        self._newest = trainer.strategy.broadcast(newest)

    def on_fit_start(self, trainer: Trainer, *_: Any) -> None:
        """Restore the newest checkpoint, and delete the metrics logged after its step; without a checkpoint, delete all
        logged metrics."""
        if self._newest is not None:
            load_training_state(trainer, self._newest.state)
            print(f"resuming from step {self._newest.step:,} ({self._newest.path})", flush=True)
        for logger in trainer.loggers:
            if isinstance(logger, MetricsFile):
                logger.truncate_after(trainer.global_step)
        self._first_step = self._saved_step = trainer.global_step

    def on_train_start(self, *_: Any) -> None:
        """Replace Lightning's signal handlers, which would exit with code 0 without saving."""
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
        """Return the request of this process: `_STOP` plus a signal number, `_SAVE`, or 0.

        `_SAVE`: after a validation with a score, after a validation if saving is cheap, or if the interval is over.
        """
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
        """Return the stop request of this process; 0 if it received no signal."""
        return _STOP + self._signals.received if self._signals.received else 0

    def _save(self, trainer: Trainer, required: bool) -> None:
        """Write a checkpoint. If that fails, raise `DomainbertError` if it is `required`, else print a warning."""
        start = time.perf_counter()
        state, step = training_state(trainer), trainer.global_step
        failure = ""  # message of a failed write, for all processes
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
    """Return the size of all tensors in nested dictionaries, lists and tuples; other values count 0."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        value = tuple(value.values())
    return sum(map(_num_bytes, value)) if isinstance(value, (list, tuple)) else 0


_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def whole_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights of a module on the CPU, by name.

    For a sharded module this is a collective operation: the first process gets the weights, the others {}.
    """
    if is_sharded(module):
        return cast("dict[str, Tensor]", get_model_state_dict(module, options=_WHOLE))
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in module.state_dict().items()}


def load_whole_weights(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """Load a result of `whole_weights`; a sharded module takes the weights of the first process."""
    if is_sharded(module):
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # the weights of the outermost module stay gathered after a validation
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(module, dict(weights), options=options)
    else:
        module.load_state_dict(weights)


def is_sharded(module: nn.Module) -> bool:
    """Return whether the parameters are sharded over several processes."""
    return any(isinstance(parameter, DTensor) for parameter in module.parameters())


def can_be_saved(trainer: Trainer) -> bool:
    """Return whether `training_state` can be called: after the first optimiser step.

    With a sharded model, each optimiser must have a state: an optimiser whose steps were all skipped has none, and
    torch would invent one.
    """
    if trainer.global_step == 0:
        return False
    sharded = isinstance(trainer.strategy, ModelParallelStrategy)  # faster than `is_sharded`; runs in each step
    return not sharded or all(optimizer.state for optimizer in _optimizers(trainer))


def training_state(trainer: Trainer) -> dict[str, Any]:
    """Return the state to resume from, which is complete in the first process; a collective operation.

    Call it only if `can_be_saved`.
    """
    module = trainer.lightning_module
    return {
        "step": trainer.global_step,
        "model": get_model_state_dict(module, options=_WHOLE) if is_sharded(module) else module.state_dict(),
        "optimizer": _optimizer_state(module, _optimizers(trainer)),
        "schedule": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        "precision": trainer.precision_plugin.state_dict(),
        "callbacks": {name: callback.state_dict() for name, callback in _callbacks(trainer).items()},
    }


def load_training_state(trainer: Trainer, file: Path) -> None:
    """Restore a `training_state` in every process.

    Call it when model and optimiser exist, before Lightning requests training batches, which begin at
    `trainer.global_step`.
    """
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the type depends on the damage
        raise DomainbertError(f"{file.parent}: unreadable ({error}); delete it to use an earlier checkpoint") from error
    module = trainer.lightning_module
    if is_sharded(module):
        set_model_state_dict(module, state["model"], options=StateDictOptions(full_state_dict=True))
    else:
        module.load_state_dict(state["model"])
    _load_optimizer_state(module, _optimizers(trainer), state["optimizer"])
    if isinstance(trainer.optimizers[0], CombinedOptimizer):
        trainer.optimizers[0].share_groups()  # loading replaced the groups
    for config, schedule in zip(trainer.lr_scheduler_configs, state["schedule"], strict=True):
        config.scheduler.load_state_dict(schedule)
    trainer.precision_plugin.load_state_dict(state["precision"])
    for name, callback in _callbacks(trainer).items():
        callback.load_state_dict(state["callbacks"].get(name, {}))
    set_progress(trainer, state["step"])


def _optimizer_state(module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
    """Return the state by parameter name, as torch does for sharded modules.

    Parameters that no step has changed have no state.
    """
    if is_sharded(module):
        return dict(get_optimizer_state_dict(module, optimizers, options=_WHOLE))
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return {
        "state": {names[parameter]: state for optimizer in optimizers for parameter, state in optimizer.state.items()},
        "param_groups": [{**group, "params": [names[parameter] for parameter in group["params"]]} for group in groups],
    }


def _load_optimizer_state(module: nn.Module, optimizers: list[Optimizer], saved: dict[str, Any]) -> None:
    """Load a result of `_optimizer_state`; `strict=False` accepts parameters without a state."""
    options = StateDictOptions(full_state_dict=is_sharded(module), strict=False)
    set_optimizer_state_dict(module, optimizers, saved, options=options)
    unstepped = {parameter for name, parameter in module.named_parameters() if name not in saved["state"]}
    for optimizer in optimizers:  # torch invents a state for unstepped parameters, with a step count
        for parameter in unstepped & optimizer.state.keys():
            del optimizer.state[parameter]


def _optimizers(trainer: Trainer) -> list[Optimizer]:
    """Return the optimisers of the training; the parts of a `CombinedOptimizer`."""
    optimizer = trainer.optimizers[0]
    return optimizer.optimizers if isinstance(optimizer, CombinedOptimizer) else [optimizer]


def _callbacks(trainer: Trainer) -> dict[str, Callback]:
    return {type(callback).__name__: callback for callback in trainer.callbacks}  # type: ignore[attr-defined]
