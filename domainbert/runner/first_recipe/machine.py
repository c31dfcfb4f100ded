"""Facts of this machine: cores, memory, GPU, and whether bf16 is fast."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from domainbert.base.process import num_cores

_LIMIT = Path("/sys/fs/cgroup/memory.max")  # memory limit of a container


@dataclass(frozen=True)
class Machine:
    """Hardware that limits a training."""

    cores: int
    memory_gib: float
    gpu: str | None
    """Name of the GPU; None if torch cannot use any."""

    bf16: bool
    """Whether matrix products in bf16 are fast, as `precision: auto` decides."""

    def describe(self) -> str:
        """Return a line for the user: cores, memory, GPU, bf16."""
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        gpu = self.gpu or "no GPU"
        return f"{cores}, {self.memory_gib:.0f} GiB of memory, {gpu}, {'fast' if self.bf16 else 'no fast'} bf16"


def this_machine() -> Machine:
    """Return the cores, memory and GPU that this process may use; imports torch."""
    import torch

    from domainbert.training.precision import resolve_precision

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return Machine(num_cores(), _memory_bytes() / 2**30, gpu, resolve_precision("auto") == "bf16-mixed")


def _memory_bytes() -> int:
    """Return the bytes of memory, or the limit of the container if it is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _LIMIT.read_text().strip() if _LIMIT.is_file() else "max"
    return min(total, int(limit)) if limit.isdecimal() else total
