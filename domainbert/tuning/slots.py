"""Resources of the parallel trials of a worker: each runs in a slot (0, 1, ...) with a GPU and a number of cores."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile

from domainbert.base.errors import DomainbertError
from domainbert.base.process import num_cores
from domainbert.tuning.config import STORAGE_URL_VARIABLE

THREADS = "OMP_NUM_THREADS"
_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_LAUNCHER_VARIABLES = re.compile(
    "(SLURM_|TORCHELASTIC_|DOMAINBERT_LAUNCH$|MASTER_(ADDR|PORT)$|((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)$|NODE_RANK$)"
)
_WORKER_VARIABLES = {STORAGE_URL_VARIABLE, "PGPASSWORD"}  # trials do not connect to the storage


def slot_environment(slot: int, num_slots: int, gpus: Sequence[int] | None) -> dict[str, str]:
    """Return the environment variables of the trials in a slot, with their GPU and their share of the cores.

    `gpus` are indices of GPUs; without them, a trial may use all GPUs. Variables of srun and torchrun are removed: a
    trial is a separate launch, not a rank of the workers' launch.
    """
    names = (name for name in os.environ if name not in _WORKER_VARIABLES and not _LAUNCHER_VARIABLES.match(name))
    environment = {name: os.environ[name] for name in names}
    if not {"", os.getcwd()} & set(sys.path):
        environment["PYTHONSAFEPATH"] = "1"  # otherwise `python -m` imports modules from the current folder
    if gpus:
        visible, gpu = _visible_gpus(os.environ), gpus[slot % len(gpus)]
        environment[_VISIBLE_GPUS] = str(gpu) if visible is None else visible[gpu]
    if num_slots > 1:
        environment.setdefault(THREADS, str(max(1, num_cores() // num_slots)))
    return environment


def check_gpus(gpus: Sequence[int] | None, environment: Mapping[str, str] = os.environ) -> None:
    """Raise `DomainbertError` if an index is outside CUDA_VISIBLE_DEVICES, which a scheduler may have set."""
    visible = _visible_gpus(environment)
    if gpus and visible is not None and max(gpus) >= len(visible):
        raise DomainbertError(
            f"gpus: found index {max(gpus)}; {_VISIBLE_GPUS} has {len(visible)} GPUs, whose indices begin at 0"
        )


def _visible_gpus(environment: Mapping[str, str]) -> list[str] | None:
    """Return the names in CUDA_VISIBLE_DEVICES, up to the first invalid name; None if it is not set."""
    if _VISIBLE_GPUS not in environment:
        return None
    names = [name.strip() for name in environment[_VISIBLE_GPUS].split(",")]
    return list(takewhile(lambda name: name not in ("", "-1"), names))  # like CUDA
