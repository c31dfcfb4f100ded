"""`micro_batch_size: auto`: the largest micro-batch that fits in GPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import default_convert

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import Share
from domainbert.training.data_module import TrainingData
from domainbert.training.lightning_internals import convert_loaded_progress
from domainbert.training.module import TrainedModule
from domainbert.training.processes import all_reduce_max

_FLOATS_PER_WEIGHT = 2  # the optimiser's moments, which the first step allocates
_RESERVED_SHARE = 0.05  # share of GPU memory reserved for other batches and the allocator


class LargestMicroBatch(Callback):
    """Callback that sets the micro-batch size, before the first step, to the largest divisor of a device's share that
    fits.

    A GPU tries a forward and a backward pass with each divisor, the largest first, and frees memory after a failure. A
    CPU takes the whole share. All processes take the smallest result. Weights, optimiser and random numbers do not
    change.

    Args:
        batch_size: rows over all devices.
        validate_every: optimiser steps between validations.
    """

    def __init__(self, batch_size: int, validate_every: int) -> None:
        self.batch_size, self.validate_every = batch_size, validate_every

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set `accumulate_grad_batches`. Raises `DomainbertError` if not even one row fits."""
        share, module = self.batch_size // trainer.world_size, cast(TrainedModule, pl_module)
        data = cast(TrainingData, trainer.datamodule)  # type: ignore[attr-defined]
        trial_steps = data.heaviest[::-1]  # the step with the longest rows first: too large sizes fail soonest there
        largest = _largest_fitting_size(trainer, module, share, trial_steps) if _is_gpu(trainer) else share
        # larger than any number of micro-batches: it becomes the maximum, so all processes raise the error
        does_not_fit = share + 1
        num_micro_batches = all_reduce_max(share // largest if largest else does_not_fit)
        if num_micro_batches == does_not_fit:
            raise DomainbertError(
                where="micro_batch_size",
                found="auto, but a single row does not fit in memory",
                expected="shorter rows (max_length) or activation_checkpointing: true",
            )
        before, trainer.accumulate_grad_batches = trainer.accumulate_grad_batches, num_micro_batches
        convert_loaded_progress(trainer, before)
        trainer.val_check_interval = self.validate_every * num_micro_batches
        if trainer.is_global_zero:
            print(f"micro_batch_size: auto takes {share // num_micro_batches} of {share} rows at once", flush=True)


def _is_gpu(trainer: Trainer) -> bool:
    return trainer.strategy.root_device.type == "cuda"


def divisors_descending(number: int) -> list[int]:
    """Return the divisors of a number, the largest first."""
    return [size for size in range(number, 0, -1) if number % size == 0]


def _largest_fitting_size(trainer: Trainer, module: TrainedModule, share: int, steps: Sequence[int]) -> int:
    """Return the largest divisor of `share` whose micro-batches fit in all `steps`; 0 if none fits. Memory for the
    optimiser's moments and a reserve is allocated during each trial."""
    device = trainer.strategy.root_device
    weight_bytes = sum(parameter.numel() * 4 for parameter in module.parameters() if parameter.requires_grad)
    reserve = int(_RESERVED_SHARE * torch.cuda.get_device_properties(device).total_memory)
    for size in divisors_descending(share):
        try:
            reserved = torch.empty(_FLOATS_PER_WEIGHT * weight_bytes + reserve, dtype=torch.uint8, device=device)
            for step in (steps[0], *steps):  # twice: the gradients exist from the second micro-batch on
                _trial_loss(trainer, module, step, num_micro_batches=share // size).backward()
            fits = True
        except torch.OutOfMemoryError:
            fits = False
        reserved = torch.empty(0)  # noqa: F841  (frees the memory)
        module.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        if fits:
            return size
    return 0


def _trial_loss(trainer: Trainer, module: TrainedModule, step: int, num_micro_batches: int) -> Tensor:
    """Return the training loss of the first of `num_micro_batches` of a step, without recording it."""
    data = cast(TrainingData, trainer.datamodule)  # type: ignore[attr-defined]
    share = Share(trainer.global_rank, trainer.world_size, num_micro_batches)
    micro_batches = data.for_device(data.train_batches(share, range(step, data.num_steps)))
    batch = trainer.strategy.batch_to_device(default_convert(micro_batches[0]), dataloader_idx=0)
    device = trainer.strategy.root_device
    gpus = [device] if device.type == "cuda" else []
    try:
        with (
            torch.random.fork_rng(devices=gpus),  # restores the random numbers of the CPU and these devices
            torch.compiler.set_stance("force_eager"),  # avoids compilation for trial sizes
            trainer.precision_plugin.train_step_context(),
        ):
            return cast(Tensor, module.training_step(batch, 0))
    finally:
        module.step_loss.discard()
