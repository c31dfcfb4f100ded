"""Assign resources to the parallel trials of a worker: a GPU and a number of cores for each."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile

from domainbert.base.errors import DomainbertError
from domainbert.base.processors import num_cores
from domainbert.tuning.config import URL

THREADS = "OMP_NUM_THREADS"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LAUNCHER = re.compile(
    "(SLURM_|TORCHELASTIC_|DOMAINBERT_LAUNCH$|MASTER_(ADDR|PORT)$|((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)$|NODE_RANK$)"
)
_WORKER_ONLY = {URL, "PGPASSWORD"}  # trials do not connect to the storage


def slot_environment(slot: int, num_slots: int, gpus: Sequence[int] | None) -> dict[str, str]:
    """Return the environment variables of the trials in a slot, with their GPU and their share of the cores.

    Variables of srun and torchrun are removed: a trial is a separate launch, not a rank of the workers' launch.
    """
    names = (name for name in os.environ if name not in _WORKER_ONLY and not _LAUNCHER.match(name))
    environment = {name: os.environ[name] for name in names}
    if not {"", os.getcwd()} & set(sys.path):
        environment["PYTHONSAFEPATH"] = "1"  # otherwise `python -m` imports modules from the current folder
    if gpus:
        visible, number = _visible_gpus(os.environ), gpus[slot % len(gpus)]
        environment[_VISIBLE] = str(number) if visible is None else visible[number]
    if num_slots > 1:
        environment.setdefault(THREADS, str(max(1, num_cores() // num_slots)))
    return environment


def check_gpus(gpus: Sequence[int] | None, environment: Mapping[str, str] = os.environ) -> None:
    """Raise `DomainbertError` if an index is outside CUDA_VISIBLE_DEVICES, which a scheduler may have set."""
    visible = _visible_gpus(environment)
    if gpus and visible is not None and max(gpus) >= len(visible):
        raise DomainbertError(
            f"gpus: found index {max(gpus)}; expected indices from 0 to {len(visible) - 1}: {_VISIBLE} has "
            f"{len(visible)} GPUs"
        )


def _visible_gpus(environment: Mapping[str, str]) -> list[str] | None:
    if _VISIBLE not in environment:
        return None
    names = [name.strip() for name in environment[_VISIBLE].split(",")]
    return list(takewhile(lambda name: name not in ("", "-1"), names))  # like CUDA
