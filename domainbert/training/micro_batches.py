"""`micro_batch_size: auto`: as many rows at once as a device has memory for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import cast

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import default_convert

from domainbert.base.errors import DomainbertError
from domainbert.data.types import Share
from domainbert.training.data_module import TrainAndValidation
from domainbert.training.module import TrainedModule
from domainbert.training.processes import highest

_FLOATS_OF_A_WEIGHT = 2  # the optimiser's running means, which are made in the first step
_BEYOND_SAVED = 1.5  # what the backward pass needs for itself, on top of what the forward pass has kept
_SPARE = 0.05  # of a GPU's memory, which other batches and the allocator may need
_SYSTEM, _GROUP, _OWN_GROUPS = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_FIRST_VERSION = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")  # of control groups


class LargestMicroBatch(Callback):
    """Chooses the largest micro-batch that fits, a divisor of a device's share of the batch, before the first step.

    A GPU tries forward and backward pass, from the whole share downwards; where memory runs out it is emptied and the
    next smaller divisor is tried. On a CPU running out of memory ends the process, so there one row is computed, and
    what its forward pass keeps for the backward pass says how many fit. All processes take the smallest that any of
    them found. Weights, optimiser and random numbers stay as they are. Stands before `Checkpoints`, which counts
    micro-batches. `batch_size` is over all devices, `validate_every` in optimiser steps. Of each shape of batches the
    step that needs the most memory is computed, of those in `heaviest`: the last one first, whose rows are the longest.
    """

    def __init__(self, batch_size: int, validate_every: int, heaviest: Sequence[int] = (0,)) -> None:
        self.batch_size, self.validate_every, self.tried = batch_size, validate_every, heaviest[::-1]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Choose it; `DomainbertError` if not even one row fits."""
        share, module = self.batch_size // trainer.world_size, cast(TrainedModule, pl_module)
        on_gpu = trainer.strategy.root_device.type == "cuda"
        most = (_tried if on_gpu else _estimated)(trainer, module, share, self.tried)
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


def _estimated(trainer: Trainer, module: TrainedModule, share: int, steps: Sequence[int]) -> int:
    """The largest divisor of the share that a CPU has memory for; all where the system does not say how much."""
    free = available_memory()
    if free is None:
        return share
    encoder = module.model.encoder
    row = float(max(_kept(trainer, module, share, step) for step in steps))
    if encoder.activation_checkpointing:  # one layer at a time has all its activations, too
        encoder.activation_checkpointing = False
        row += max(_kept(trainer, module, share, step) for step in steps) / encoder.num_hidden_layers
        encoder.activation_checkpointing = True
    weights = sum(parameter.numel() * 4 for parameter in module.parameters() if parameter.requires_grad)
    room = free / max(trainer.num_devices, 1) - (_FLOATS_OF_A_WEIGHT + 1) * weights
    return next((size for size in divisors(share) if size * _BEYOND_SAVED * row <= room), 0)


def available_memory() -> int | None:
    """Bytes that processes may still take, of the machine and of the control group (a container's limit); None where
    the system does not say so, which is anywhere but on Linux."""
    if not _SYSTEM.is_file():
        return None
    free = _numbers(_SYSTEM).get("MemAvailable:")
    if free is None:
        return None
    groups = [_GROUP / own.lstrip("/") for own in _own_groups()]
    return min([free * 1024, *(left for group in groups if (left := _left_in(group)) is not None)])


def _own_groups() -> list[str]:
    """The control groups that limit this process: its own, and those around it, as far as they are seen from here."""
    if not _OWN_GROUPS.is_file():
        return [""]
    lines = [line.split(":", 2) for line in _OWN_GROUPS.read_text(encoding="utf-8").splitlines()]
    paths = [PurePosixPath(path) for _, kinds, path in lines if not kinds or "memory" in kinds.split(",")]
    return ["", *(str(group) for path in paths for group in (path, *path.parents))]


def _left_in(group: Path) -> int | None:
    """Bytes that a control group has left, with those that it holds of files and would give back; None if no limit."""
    for folder, most, used, files in (
        (group, "memory.max", "memory.current", "inactive_file"),
        (_GROUP / "memory" / group.relative_to(_GROUP), *_FIRST_VERSION),
    ):
        if (folder / most).is_file() and (folder / used).is_file():
            limit = (folder / most).read_text(encoding="ascii").strip()
            back = _numbers(folder / "memory.stat").get(files, 0) if (folder / "memory.stat").is_file() else 0
            return None if limit == "max" else int(limit) - int((folder / used).read_text(encoding="ascii")) + back
    return None


def _numbers(path: Path) -> dict[str, int]:
    """The numbers of a file of the system, by the word before each."""
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdecimal()}


def _kept(trainer: Trainer, module: TrainedModule, share: int, step: int) -> int:
    """Bytes that the forward pass of one row keeps for the backward pass, or of as many shorter ones as hold the same
    number of tokens."""
    kept = {parameter.data_ptr(): 0 for parameter in module.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept.setdefault(storage.data_ptr(), storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = _loss(trainer, module, share, step)
    del loss  # until here nothing of it was freed, so no address was counted for two tensors
    return sum(kept.values())


def _loss(trainer: Trainer, module: TrainedModule, accumulation: int, step: int) -> Tensor:
    """Loss of the first of `accumulation` micro-batches of a step, as in training, but that it is not noted."""
    data = cast(TrainAndValidation, trainer.datamodule)  # type: ignore[attr-defined]
    share = Share(trainer.global_rank, trainer.world_size, accumulation)
    batch = default_convert(data.for_device(data.train(share, range(step, data.num_steps)))[0])
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
