"""The LightningDataModule of every training."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import lightning
import torch
from torch.utils.data import DataLoader, Dataset

from domainbert.base.errors import DomainbertError
from domainbert.base.signals import ignore_stop_signals
from domainbert.data.types import SPARE, Batch, Share, TrainBatches, ValidationBatches
from domainbert.encoders.attention import segment_boundaries

_AHEAD = 2  # batches


class TrainAndValidation(lightning.LightningDataModule):
    """Hands ready-made batches to Lightning, to each rank its share.

    `train` and `validations` are those of `fit.TrainingData`; validation sets are read one after the other. The
    training's batches are those from the Trainer's `global_step` to `num_steps`. The processes that build them,
    `num_workers`, change the speed, never the batches; None stands for a thread on a GPU, see `BuiltAhead`.
    """

    def __init__(
        self,
        train: TrainBatches,
        validations: Sequence[ValidationBatches],
        num_steps: int,
        num_workers: int | None,
    ) -> None:
        super().__init__()
        self.train, self.validations = train, validations
        self.num_steps, self.num_workers = num_steps, num_workers

    def train_dataloader(self) -> DataLoader[Batch]:
        """Training batches, in order, from the next step on."""
        assert self.trainer is not None
        batches = self.train(share_of(self.trainer), range(self.trainer.global_step, self.num_steps))
        return self._loader(batches)

    def val_dataloader(self) -> list[DataLoader[Batch]]:
        """Validation batches, in order, for each set, the same number on each device; see `SameNumber`.

        `DomainbertError` where a device would have nothing to score of the only set.
        """
        assert self.trainer is not None
        share = share_of(self.trainer)
        last = replace(share, rank=share.world_size - 1)  # has the fewest; so all processes say so, and none waits
        if len(self.validations) == 1 and not len(self.validations[0](last)):  # type: ignore[arg-type]
            raise DomainbertError(f"validation: fewer items than devices ({share.world_size}); use fewer devices")
        return [self._loader(SameNumber.of(validation, share)) for validation in self.validations]

    def for_device(self, batches: Dataset[Batch]) -> Dataset[Batch]:
        """Return the batches with what the device of the training needs besides."""
        return WithBoundaries(batches) if self._on_gpu() else batches

    def _on_gpu(self) -> bool:
        assert self.trainer is not None
        return self.trainer.strategy.root_device.type == "cuda"

    def _loader(self, batches: Dataset[Batch]) -> DataLoader[Batch]:
        on_gpu, workers = self._on_gpu(), self.num_workers or 0
        loader = BuiltAhead if on_gpu and self.num_workers is None else DataLoader
        return loader(
            self.for_device(batches),
            batch_size=None,
            num_workers=workers,
            pin_memory=on_gpu,  # copied to it while it computes
            persistent_workers=workers > 0,
            worker_init_fn=ignore_stop_signals,
            generator=torch.Generator(),  # the global one decides dropout, whatever workers and validations there are
        )


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

    Processes that compute together (fsdp) would else wait for each other for ever. A spare batch is one that another
    process counts, and holds `SPARE`: it is computed, and not counted again.
    """

    def __init__(self, own: Dataset[Batch], first: Dataset[Batch]) -> None:
        self.own, self.first = own, first

    @classmethod
    def of(cls, validation: ValidationBatches, share: Share) -> SameNumber:
        """Those of a share. Items are dealt in turn, so the first process has the most batches."""
        first = validation(replace(share, rank=0))
        return cls(validation(share) if share.rank else first, first)

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
