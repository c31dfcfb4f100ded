"""Loaders of collated batches: prefetching, batches of equal number on all devices, and the end of worker processes."""

from __future__ import annotations

import atexit
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, Dataset

from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Batch
from domainbert.encoders.layers import segment_boundaries
from domainbert.training.lightning_internals import batch_indices

if TYPE_CHECKING:
    from lightning import Trainer

SPARE = "spare"  # marks a validation batch that must not be counted
_NUM_PREFETCHED = 2  # batches that a thread prepares ahead
_WORKERS: WeakSet[BaseProcess] = WeakSet()  # worker processes of all loaders


class Batches(Iterable[Batch]):
    """Batches of an epoch. Not a DataLoader, whose sampler Lightning would replace: the batches are already divided.

    `loader` is called when the iteration begins: a resumed training does not know its step earlier. The position of an
    iteration needs no state in checkpoints, as it follows from the optimizer step. `indices` are the indices of the
    items of each batch, which Lightning passes to a `BasePredictionWriter`. `trainer` is the Trainer by whose position
    training batches are selected.
    """

    def __init__(
        self,
        loader: Callable[[], DataLoader[Batch]],
        length: Callable[[], int],
        indices: Sequence[list[int]] = (),
        trainer: Trainer | None = None,
    ) -> None:
        self.loader, self.length, self.trainer = loader, length, trainer
        self.batch_sampler = batch_indices(indices) if indices else None

    def __len__(self) -> int:
        return self.length()

    def __iter__(self) -> Iterator[Batch]:
        loader = self.loader()  # created now: a resumed training does not know its step earlier
        other_children = set(multiprocessing.active_children())
        batches = iter(loader)  # starts the workers
        _WORKERS.update(set(multiprocessing.active_children()) - other_children)
        yield from batches

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state for checkpoints."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing: the state is empty."""


class PrefetchLoader(DataLoader[Batch]):
    """Loader without workers: a thread builds and pins batches ahead, while earlier steps are queued."""

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """Iterate over the batches in order; a thread prepares the next `_NUM_PREFETCHED`."""
        batches = super().__iter__()
        with ThreadPoolExecutor(1) as thread:  # a single thread, so that the order is kept
            prefetched = deque(thread.submit(next, batches, None) for _ in range(_NUM_PREFETCHED))
            while (batch := prefetched.popleft().result()) is not None:  # None after the last batch
                prefetched.append(thread.submit(next, batches, None))
                yield batch


class WithBoundaries(Dataset[Batch]):
    """Batches with segment boundaries, for a GPU: counting the segments there would wait for its queued kernels.

    If `batches` has an attribute `most_texts`, the largest expected number of segments in a batch, the boundaries of
    batches up to this number have the same shape, which avoids recompilation.
    """

    def __init__(self, batches: Dataset[Batch]) -> None:
        self.batches = batches
        self.most_texts: int = getattr(batches, "most_texts", 0)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Batch:
        batch = self.batches[index]
        return batch | {"boundaries": segment_boundaries(torch.as_tensor(batch["segment_ids"]), self.most_texts)}


class EqualLengthBatches(Dataset[Batch]):
    """Batches of a process outside of training, padded with spare batches to the length of `first`, so that no process
    waits.

    Items are distributed round-robin, so the first process has the most batches, `first`. Processes that compute
    together (fsdp) would otherwise wait for each other forever. A spare batch repeats a batch of the first process and
    has the key `SPARE`: it is computed, but not counted.
    """

    def __init__(self, local: Dataset[Batch], first: Dataset[Batch]) -> None:
        self.local, self.first = local, first

    @property
    def indices(self) -> list[list[int]]:
        """Indices of the items of each batch, of batches that have them; a spare batch has none."""
        indices: list[list[int]] = self.local.indices  # type: ignore[attr-defined]
        return indices + [[] for _ in range(len(self) - len(indices))]

    def __len__(self) -> int:
        """Return the number of batches, including spare batches."""
        return len(self.first)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Batch:
        """Return batch `index`, or a spare batch."""
        if index < len(self.local):  # type: ignore[arg-type]
            return self.local[index]
        return self.first[0] | {SPARE: True}


@atexit.register
def _kill_workers() -> None:
    """End the worker processes of loaders that still exist when this process exits. Workers ignore the SIGTERM that
    multiprocessing sends them, so multiprocessing would wait for them forever."""
    workers = _WORKERS.intersection(multiprocessing.active_children())
    if workers:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler reports a killed worker
    for worker in workers:
        worker.kill()


@contextmanager
def reraise_worker_error() -> Iterator[None]:
    """Re-raise the `DomainbertError` of a loader's worker process without the traceback that torch adds to its
    message."""
    try:
        yield
    except DomainbertError as error:
        # torch raises the type of the error with the text "Caught ... Traceback ... DomainbertError: message"
        _, separator, message = str(error).rpartition(f"{DomainbertError.__name__}: ")
        if separator and str(error).startswith("Caught "):
            raise DomainbertError(message.strip()) from None
        raise
