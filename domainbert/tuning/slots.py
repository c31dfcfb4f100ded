"""Resources of the trials that a worker runs at a time: the GPU and the number of cores of each."""

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
_OF_A_LAUNCHER = re.compile(
    "(SLURM_|TORCHELASTIC_|DOMAINBERT_LAUNCH$|MASTER_(ADDR|PORT)$|((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)$|NODE_RANK$)"
)
_OF_THE_WORKER = {URL, "PGPASSWORD"}  # trials do not speak to the storage


def slot_environment(slot: int, num_slots: int, gpus: Sequence[int] | None) -> dict[str, str]:
    """The environment of the trials in one of a worker's slots: their GPU, and their share of the cores.

    Where srun or torchrun has started several workers, each of their trials is a launch of its own.
    """
    kept = (name for name in os.environ if name not in _OF_THE_WORKER and not _OF_A_LAUNCHER.match(name))
    environment = {name: os.environ[name] for name in kept}
    if not {"", os.getcwd()} & set(sys.path):
        environment["PYTHONSAFEPATH"] = "1"  # `python -m` would look for modules in the current folder
    if gpus:
        visible, number = _visible(os.environ), gpus[slot % len(gpus)]
        environment[_VISIBLE] = str(number) if visible is None else visible[number]
    if num_slots > 1:
        environment.setdefault(THREADS, str(max(1, num_cores() // num_slots)))
    return environment


def check_gpus(gpus: Sequence[int] | None, environment: Mapping[str, str] = os.environ) -> None:
    """Raise `DomainbertError` if the worker may not use as many GPUs: a scheduler gives it some of a machine's."""
    visible = _visible(environment)
    if gpus and visible is not None and max(gpus) >= len(visible):
        raise DomainbertError(
            f"gpus: found {max(gpus)}; {_VISIBLE} shows {len(visible)} of them, expected numbers from 0 below that"
        )


def _visible(environment: Mapping[str, str]) -> list[str] | None:
    """The GPUs that this process may use, by their names outside of it; None if it may use all."""
    if _VISIBLE not in environment:
        return None
    names = [name.strip() for name in environment[_VISIBLE].split(",")]
    return list(takewhile(lambda name: name not in ("", "-1"), names))  # what CUDA does
