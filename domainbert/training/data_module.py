"""Base of the LightningDataModules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import lightning
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader, Dataset

from domainbert.base.errors import DomainbertError
from domainbert.base.signals import ignore_stop_signals
from domainbert.data.types import SPARE, Batch, Share
from domainbert.encoders.attention import segment_boundaries
from domainbert.training.lightning_internals import batches_of_epoch
from domainbert.training.module import TrainedModule

_AHEAD = 2  # batches


class TrainingData(lightning.LightningDataModule):
    """Base of the data modules: ready-made batches, to each rank its share of them.

    The global batch of an optimizer step is a function of the seed and the step. Devices and micro-batches
    (`accumulate_grad_batches`) divide it, so that they change the speed and the memory, not the result. An epoch is one
    pass over the training set; its last batch is filled up with items of the next pass.

    Args:
        batch_size: items of an optimizer step, over all devices and micro-batches.
        num_workers: processes that build batches; None stands for a thread on a GPU (see `BuiltAhead`), else for none.

    Attributes:
        steps_per_epoch: optimizer steps of an epoch; None takes one pass.
        heaviest: steps that need the most memory: one of each shape of batches, the largest last.
    """

    heaviest: Sequence[int] = (0,)

    def __init__(self, batch_size: int, num_workers: int | None = None) -> None:
        super().__init__()
        self.batch_size, self.num_workers = batch_size, num_workers
        self.steps_per_epoch: int | None = None

    @property
    def num_items(self) -> int:
        """Items of the training set."""
        raise NotImplementedError

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Micro-batches of some optimizer steps (from 0) for a rank."""
        raise NotImplementedError

    def validation_batches(self, share: Share) -> Sequence[Dataset[Batch]]:
        """Batches of each validation set for a rank."""
        raise NotImplementedError

    def describe(self, step: int) -> Mapping[str, Any]:
        """Plain values that say what the global batch of a step is."""
        return {}

    def resolve(self, module: TrainedModule | None, stage: str) -> None:
        """Open what a stage of Lightning (`fit`, `validate`, `test`, `predict`) reads, and build the module's models.

        What is open already is kept.
        """
        raise NotImplementedError

    def setup(self, stage: str) -> None:
        """See `resolve`; without a Trainer only the data is opened."""
        stage = TrainerFn(stage).value
        module = None if self.trainer is None else self.trainer.lightning_module
        if module is not None and not isinstance(module, TrainedModule):
            found, expected = type(module).__name__, type(self).__name__
            raise DomainbertError(f"trainer.{stage}: found {found} with {expected}; expected a module of domainbert")
        self.resolve(module, stage)

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the training; of one epoch without a Trainer."""
        return self._epoch if self.trainer is None else int(self.trainer.estimated_stepping_batches)

    @property
    def _epoch(self) -> int:
        return self.steps_per_epoch or -(-self.num_items // self.batch_size)

    @property
    def _share(self) -> Share:
        return Share() if self.trainer is None else share_of(self.trainer)

    def train_dataloader(self) -> Batches:
        """Training batches of an epoch, in order, from the next step on.

        `DomainbertError` where the devices and micro-batches do not divide `batch_size`.
        """
        share, first = self._share, 0
        parts = share.world_size * share.accumulation
        if self.batch_size % parts:
            raise DomainbertError(
                f"batch_size: found {self.batch_size}; expected a multiple of {parts}: {share.world_size} devices with "
                f"accumulate_grad_batches {share.accumulation}"
            )
        if self.trainer is not None and not batches_of_epoch(self.trainer):
            first = self.trainer.global_step % self._epoch  # a stage goes on in the middle
        length = (self._epoch - first) * share.accumulation
        return Batches(lambda: self._rest_of_epoch(length), length)

    def val_dataloader(self) -> list[Batches]:
        """Validation batches, in order, for each set, the same number on each device; see `SameNumber`.

        `DomainbertError` where a device would have nothing to score of the only set.
        """
        share = self._share
        own, first, last = (
            self.validation_batches(replace(share, rank=rank)) for rank in (share.rank, 0, share.world_size - 1)
        )
        if len(last) == 1 and not len(last[0]):  # type: ignore[arg-type]  # all processes say so, and none waits
            raise DomainbertError(f"validation: fewer items than devices ({share.world_size}); use fewer devices")
        loaders = [self._loader(self.for_device(SameNumber(*pair))) for pair in zip(own, first, strict=True)]
        return [Batches(partial(_same, loader), len(loader)) for loader in loaders]

    def for_device(self, batches: Dataset[Batch]) -> Dataset[Batch]:
        """Return the batches with what the device of the training needs besides."""
        return WithBoundaries(batches) if self._on_gpu() else batches

    def _rest_of_epoch(self, length: int) -> DataLoader[Batch]:
        """What is left of an epoch of so many micro-batches, at the moment when the first of them is asked for."""
        share, begun, step = self._share, 0, 0
        if self.trainer is not None:
            begun, step = batches_of_epoch(self.trainer), self.trainer.global_step
            if self.trainer.overfit_batches:  # type: ignore[attr-defined]  # the same in each epoch
                step = begun // share.accumulation
        left, skipped, total = length - begun, begun % share.accumulation, self.num_steps
        stop = total if total > step else step + -(-(skipped + left) // share.accumulation)
        left = min(left, (stop - step) * share.accumulation - skipped)
        batches = self.train_batches(share, range(step, stop))
        return self._loader(self.for_device(batches), range(skipped, skipped + left))

    def _on_gpu(self) -> bool:
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    def _loader(self, batches: Dataset[Batch], indices: range | None = None) -> DataLoader[Batch]:
        on_gpu, workers = self._on_gpu(), self.num_workers or 0
        loader = BuiltAhead if on_gpu and self.num_workers is None else DataLoader
        return loader(
            batches,
            batch_size=None,
            sampler=indices,
            num_workers=workers,
            pin_memory=on_gpu,  # copied to it while it computes
            persistent_workers=workers > 0,
            worker_init_fn=ignore_stop_signals,
            generator=torch.Generator(),  # the global one decides dropout, whatever workers and validations there are
        )


class Batches(Iterable[Batch]):
    """Batches of an epoch for Lightning, which would give a DataLoader a sampler of its own: each rank has its share.

    A loader is made when the first batch is asked for: only then does a training that resumes know its step. That step
    is all its state.
    """

    def __init__(self, loader: Callable[[], DataLoader[Batch]], length: int) -> None:
        self.loader, self.length = loader, length

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        yield from self.loader()

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints: nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The reverse of `state_dict`."""


def _same(loader: DataLoader[Batch]) -> DataLoader[Batch]:
    return loader


class BuiltAhead(DataLoader[Batch]):
    """A loader without workers whose batches a thread builds, and pins, while the steps before them are queued."""

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """Batches, in order."""
        batches = super().__iter__()
        with ThreadPoolExecutor(1) as thread:
            ahead = deque(thread.submit(next, batches, None) for _ in range(_AHEAD))
            while (batch := ahead.popleft().result()) is not None:
                ahead.append(thread.submit(next, batches, None))
                yield batch


class WithBoundaries(Dataset[Batch]):
    """Batches for a GPU, with the boundaries of their texts: counting the texts there would wait for it.

    If `batches` has an attribute `most_texts`, the number of segments of a batch at most, all boundaries have one
    shape, so that nothing is compiled again.
    """

    def __init__(self, batches: Dataset[Batch]) -> None:
        self.batches = batches
        self.most_texts: int = getattr(batches, "most_texts", 0)

    def __len__(self) -> int:
        """Batches."""
        return len(self.batches)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Batch:
        """Batch `index`."""
        batch = self.batches[index]
        return batch | {"boundaries": segment_boundaries(torch.as_tensor(batch["segment_ids"]), self.most_texts)}


class SameNumber(Dataset[Batch]):
    """Validation batches of a process, followed by spare ones until it has as many as the process that has the most.

    Items are dealt in turn, so the first process has the most batches, `first`.

    Processes that compute together (fsdp) would else wait for each other for ever. A spare batch is one that another
    process counts, and holds `SPARE`: it is computed, and not counted again.
    """

    def __init__(self, own: Dataset[Batch], first: Dataset[Batch]) -> None:
        self.own, self.first = own, first

    def __len__(self) -> int:
        """Batches with the spare ones."""
        return len(self.first)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Batch:
        """Batch `index`."""
        if index < len(self.own):  # type: ignore[arg-type]
            return self.own[index]
        return self.first[0] | {SPARE: True}


@contextmanager
def told_by_workers() -> Iterator[None]:
    """While this lasts, an error that a worker process of a loader found is told in its words alone: torch puts the
    worker's traceback before them."""
    try:
        yield
    except DomainbertError as error:
        _, of_worker, told = str(error).rpartition(f"{DomainbertError.__name__}: ")
        if of_worker and str(error).startswith("Caught "):
            raise DomainbertError(told.strip()) from None
        raise


def share_of(trainer: lightning.Trainer) -> Share:
    """The part of each global batch that this process has; it is known when the training has begun."""
    return Share(trainer.global_rank, trainer.world_size, trainer.accumulate_grad_batches)
