"""All that relies on what Lightning does not promise: its private names, and the insides of its loops.

Looked up in Lightning 2.6.6. With another version, look here first.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy

# What Lightning says of loaders, batches and metrics that is not so for ready-made batches and exact metrics.
_DOES_NOT_APPLY = (
    "does not have many workers",
    "Trying to infer the `batch_size`",
    "LeafSpec",
    "sync_dist=True",
    "is smaller than the logging interval",
)


class FullySharded(ModelParallelStrategy):
    """FSDP2: each layer's weights, gradients and optimiser states are spread over all devices of all nodes.

    Unlike Lightning's own `fsdp` it runs on CPUs too, and its whole state is that of any other strategy.
    """

    def __init__(self) -> None:
        super().__init__(save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        """See Lightning."""
        self._data_parallel_size, self._tensor_parallel_size = self.num_nodes * self.num_processes, 1
        super().setup_environment()


def set_ddp_option(strategy: Strategy, name: str, value: Any) -> None:
    """Set an argument of `DistributedDataParallel` that is not given, where that is the strategy."""
    if isinstance(strategy, DDPStrategy):
        strategy._ddp_kwargs.setdefault(name, value)


def begin_at(trainer: lightning.Trainer, step: int) -> None:
    """Set Lightning's counters, which are at 0, to those after `step` optimiser steps.

    Its own way of resuming takes batches off the loader until it is where it was, and expects as many devices as then.
    """
    loop = trainer.fit_loop.epoch_loop
    loop.batch_progress.total.increment_by(step * trainer.accumulate_grad_batches)
    loop.automatic_optimization.optim_progress.optimizer.step.total.increment_by(step)
    loop._batches_that_stepped = step


def batches_of_epoch(trainer: lightning.Trainer) -> int:
    """Return how many micro-batches of the current epoch have been handed out; all of them at its end."""
    return int(trainer.fit_loop.epoch_loop.batch_progress.current.ready)


def is_logged_step(trainer: lightning.Trainer) -> bool:
    """Return whether loggers get the metrics of the current optimizer step; they always get those of the last one."""
    step = trainer.fit_loop.epoch_loop._batches_that_stepped + 1
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return step == trainer.max_steps or (every > 0 and step % every == 0)


def validate_now(trainer: lightning.Trainer) -> None:
    """Run the validation loop as Lightning does between two steps; loggers, which count steps, get nothing of it."""
    loggers, trainer.loggers = trainer.loggers, []
    trainer.validating = True
    trainer.fit_loop.epoch_loop.val_loop.run()
    trainer.training = True
    trainer.loggers = loggers


def quieten() -> None:
    """Leave out what Lightning prints and warns of that does not apply."""
    for name in ("lightning.pytorch", "lightning.fabric.utilities.distributed"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for text in _DOES_NOT_APPLY:
        warnings.filterwarnings("ignore", message=f".*{text}.*")
