"""Base class of the LightningDataModules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, Dataset

from domainbert.base.errors import DomainbertError
from domainbert.base.process import ignore_stop_signals
from domainbert.data.batches import Share
from domainbert.data.packing import Batch
from domainbert.training.lightning_internals import batches_of_epoch
from domainbert.training.loaders import Batches, EqualLengthBatches, PrefetchLoader, WithBoundaries


class TrainingData(lightning.LightningDataModule):
    """Base class of the data modules: collated batches, divided over ranks.

    The global batch of an optimizer step is a function of the seed and the step. Devices and micro-batches
    (`accumulate_grad_batches`) divide it, so they change speed and memory, not the result. An epoch is one pass over
    the training set; items of the next pass fill its last batch.

    Args:
        batch_size: items per optimizer step, over all devices and micro-batches.
        num_workers: worker processes; None uses a thread for a GPU (see `PrefetchLoader`), else no worker.

    Attributes:
        heaviest: for each batch shape, the step that needs the most memory; the largest shape last.
    """

    heaviest: Sequence[int] = (0,)

    def __init__(self, batch_size: int, num_workers: int | None = None) -> None:
        super().__init__()
        self.batch_size, self.num_workers = batch_size, num_workers

    __str__ = object.__repr__  # Lightning's lists all batches

    @property
    def num_items(self) -> int:
        """Number of items of the training set."""
        raise NotImplementedError

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Return the micro-batches of a rank for a range of optimizer steps (from 0)."""
        raise NotImplementedError

    def validation_batches(self, share: Share) -> Sequence[Dataset[Batch]]:
        """Return the batches of a rank for each validation set."""
        raise NotImplementedError

    def describe(self, step: int) -> Mapping[str, Any]:
        """Return plain values that identify the items in the global batch of a step, for error reports; {} by
        default."""
        return {}

    @property
    def num_steps(self) -> int:
        """Number of optimizer steps of the training; without a Trainer, of one epoch."""
        return self._steps_of_epoch if self.trainer is None else int(self.trainer.estimated_stepping_batches)

    @property
    def _steps_of_epoch(self) -> int:
        return math.ceil(self.num_items / self.batch_size)

    @property
    def _share(self) -> Share:
        return Share() if self.trainer is None else share_of(self.trainer)

    def train_dataloader(self) -> Batches:
        """Return the micro-batches of this epoch, in order, from the next optimizer step on.

        Raises `DomainbertError` if the devices and micro-batches do not divide `batch_size`.
        """
        share = self._share
        num_micro_batches = share.world_size * share.accumulation
        if self.batch_size % num_micro_batches:
            raise DomainbertError(
                where="batch_size",
                found=self.batch_size,
                expected=f"a multiple of {num_micro_batches}, the number of devices ({share.world_size}) times "
                f"accumulate_grad_batches ({share.accumulation})",
            )

        def length() -> int:  # callbacks may change the accumulation
            return self._steps_of_epoch * self._share.accumulation

        return Batches(lambda: self._last_batches(length()), length, trainer=self.trainer)

    def val_dataloader(self) -> list[Batches]:
        """Return the validation batches of each set, in order, equally many on each device; see `EqualLengthBatches`.

        Raises `DomainbertError` if a device has no item of the only set; of several sets, some may be that small.
        """
        share = self._share
        of_this_rank = self.validation_batches(share)
        of_first_rank = self.validation_batches(replace(share, rank=0))
        of_last_rank = self.validation_batches(replace(share, rank=share.world_size - 1))
        # the last rank has the fewest items; all processes raise, so none waits for another
        if len(of_last_rank) == 1 and not len(of_last_rank[0]):  # type: ignore[arg-type]
            raise DomainbertError(
                where="validation", found=f"fewer items than devices ({share.world_size})", hint="use fewer devices"
            )
        sets = zip(of_this_rank, of_first_rank, strict=True)
        return [self._batches(EqualLengthBatches(local, longest)) for local, longest in sets]

    def _equal_length(self, batches_of: Callable[[Share], Dataset[Batch]]) -> EqualLengthBatches:
        """Return the batches of this process, equally many on each device."""
        return EqualLengthBatches(batches_of(self._share), batches_of(replace(self._share, rank=0)))

    def _batches(self, batches: Dataset[Batch], indices: Sequence[list[int]] = (), use_workers: bool = True) -> Batches:
        loader = self._loader(batches, use_workers=use_workers)
        return Batches(lambda: loader, lambda: len(loader), indices)

    def for_device(self, batches: Dataset[Batch]) -> Dataset[Batch]:
        """Return the batches: for a GPU with segment boundaries added, for a CPU unchanged."""
        return WithBoundaries(batches) if self._on_gpu() else batches

    def _last_batches(self, num_batches: int) -> DataLoader[Batch]:
        """Return a loader of an epoch of `num_batches` micro-batches, from the position of the Trainer on."""
        share = self._share
        # position: optimizer step, and micro-batches fetched in this epoch, which are whole steps
        fetched_in_epoch = step = 0
        if self.trainer is not None:
            fetched_in_epoch, step = batches_of_epoch(self.trainer), self.trainer.global_step
            if self.trainer.overfit_batches:  # type: ignore[attr-defined]  # repeat the same batches in each epoch
                step = fetched_in_epoch // share.accumulation
        left_in_epoch = num_batches - fetched_in_epoch
        stop = self.num_steps
        if step >= stop:  # Lightning may ask for an epoch after the last step of the training
            stop = step + math.ceil(left_in_epoch / share.accumulation)
        left_in_training = (stop - step) * share.accumulation
        batches = self.train_batches(share, range(step, stop))
        return self._loader(batches, range(min(left_in_epoch, left_in_training)))

    def _on_gpu(self) -> bool:
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    def _loader(
        self, batches: Dataset[Batch], indices: range | None = None, use_workers: bool = True
    ) -> DataLoader[Batch]:
        on_gpu, num_workers = self._on_gpu(), self.num_workers if use_workers else None
        workers = num_workers or 0
        loader = PrefetchLoader if on_gpu and num_workers is None else DataLoader
        return loader(
            self.for_device(batches),
            batch_size=None,
            sampler=indices,  # None: all batches, in order
            num_workers=workers,
            pin_memory=on_gpu,  # copies overlap with computation
            persistent_workers=workers > 0,
            worker_init_fn=ignore_stop_signals,
            generator=torch.Generator(),  # so that loaders do not advance the global generator, which draws dropout
        )


def share_of(trainer: lightning.Trainer) -> Share:
    """Return the share of this process in each global batch; available once the training has begun."""
    return Share(trainer.global_rank, trainer.world_size, trainer.accumulate_grad_batches)
