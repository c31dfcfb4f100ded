"""`micro_batch_size: auto`: as many rows at once as a GPU has memory for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import default_convert

from domainbert.base.errors import DomainbertError
from domainbert.data.types import Share
from domainbert.training.data_module import TrainingData
from domainbert.training.module import TrainedModule
from domainbert.training.processes import highest

_FLOATS_OF_A_WEIGHT = 2  # the optimiser's running means, which are made in the first step
_SPARE = 0.05  # of a GPU's memory, which other batches and the allocator may need


class LargestMicroBatch(Callback):
    """Chooses the largest micro-batch that fits, a divisor of a device's share of the batch, before the first step.

    A GPU tries forward and backward pass, from the whole share downwards; where memory runs out it is emptied and the
    next smaller divisor is tried. A CPU takes the whole share. All processes take the smallest that any of them found.
    Weights, optimiser and random numbers stay unchanged. Precedes `Checkpoints`, which counts micro-batches.

    Args:
        batch_size: rows over all devices.
        validate_every: optimiser steps.
        heaviest: of each shape of batches the step that needs the most memory; the longest rows are last, and are tried
            first.
    """

    def __init__(self, batch_size: int, validate_every: int, heaviest: Sequence[int] = (0,)) -> None:
        self.batch_size, self.validate_every, self.tried = batch_size, validate_every, heaviest[::-1]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Choose it; `DomainbertError` if not even one row fits."""
        share, module = self.batch_size // trainer.world_size, cast(TrainedModule, pl_module)
        most = _tried(trainer, module, share, self.tried) if _is_gpu(trainer) else share
        parts = highest(share // most if most else share + 1)
        if parts > share:
            raise DomainbertError(
                "micro_batch_size: auto, but not one row of the batch fits in memory; expected shorter rows "
                "(max_length) or activation_checkpointing: true"
            )
        trainer.accumulate_grad_batches = parts
        trainer.val_check_interval = self.validate_every * parts
        if trainer.is_global_zero:
            print(f"micro_batch_size: auto takes {share // parts} of {share} rows at once", flush=True)


def _is_gpu(trainer: Trainer) -> bool:
    return trainer.strategy.root_device.type == "cuda"


def divisors(number: int) -> list[int]:
    """Those of a number, the largest first."""
    return [size for size in range(number, 0, -1) if number % size == 0]


def _tried(trainer: Trainer, module: TrainedModule, share: int, steps: Sequence[int]) -> int:
    """The largest divisor of the share that a GPU computes in all the steps; 0 if it computes none."""
    device = trainer.strategy.root_device
    weights = sum(parameter.numel() * 4 for parameter in module.parameters() if parameter.requires_grad)
    spare = int(_SPARE * torch.cuda.get_device_properties(device).total_memory)
    for size in divisors(share):
        try:
            taken = torch.empty(_FLOATS_OF_A_WEIGHT * weights + spare, dtype=torch.uint8, device=device)
            for step in (steps[0], *steps):  # from the second micro-batch on, the gradients of the first are there
                _loss(trainer, module, share // size, step).backward()
            found = True
        except torch.OutOfMemoryError:
            found = False
        taken = torch.empty(0)  # noqa: F841  (given back)
        module.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        if found:
            return size
    return 0


def _loss(trainer: Trainer, module: TrainedModule, accumulation: int, step: int) -> Tensor:
    """Loss of the first of `accumulation` micro-batches of a step, as in training, but that it is not noted."""
    data = cast(TrainingData, trainer.datamodule)  # type: ignore[attr-defined]
    share = Share(trainer.global_rank, trainer.world_size, accumulation)
    batch = default_convert(data.for_device(data.train_batches(share, range(step, data.num_steps)))[0])
    batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
    device = trainer.strategy.root_device
    generators = [device] if device.type == "cuda" else []
    try:
        with (
            torch.random.fork_rng(generators),
            torch.compiler.set_stance("force_eager"),  # nothing is compiled for sizes that are only tried
            trainer.precision_plugin.train_step_context(),
        ):
            return cast(Tensor, module.training_step(batch, 0))
    finally:
        module.forget()
