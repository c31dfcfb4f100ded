"""The machine that a recipe is written on: cores, memory, GPU, and whether it is good at bf16."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from domainbert.base.processors import num_cores

_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


@dataclass(frozen=True)
class Machine:
    """Facts of the machine that a training has to go by."""

    cores: int
    memory_gib: float
    gpu: str | None
    """Name of the GPU; None where there is none that torch can use."""

    bf16: bool
    """Whether products in bf16 are fast, as `precision: auto` decides."""

    def describe(self) -> str:
        """A line for a person."""
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        gpu = self.gpu or "no GPU"
        return f"{cores}, {self.memory_gib:.0f} GiB of memory, {gpu}, {'fast' if self.bf16 else 'no fast'} bf16"


def this_machine() -> Machine:
    """The machine that this process runs on, as far as it may use it; torch is imported."""
    import torch

    from domainbert.training.precision import resolve_precision

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return Machine(num_cores(), _memory() / 2**30, gpu, resolve_precision("auto") == "bf16-mixed")


def _memory() -> int:
    """Bytes of memory, or of what a container may have of it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _LIMIT.read_text().strip() if _LIMIT.is_file() else "max"
    return min(whole, int(limit)) if limit.isdecimal() else whole
