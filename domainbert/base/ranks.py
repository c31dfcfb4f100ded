"""Rank of this process, from environment variables only. Free of torch."""

from __future__ import annotations

import os
from collections.abc import Mapping

LAUNCH = "DOMAINBERT_LAUNCH"  # set while a stage runs: the same text in all processes that the stage starts

# Variables that identify a launch: of domainbert, torchrun, SLURM and Lightning; the first one tells which set applies.
_LAUNCH_VARIABLES = (
    (LAUNCH,),
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ("MASTER_ADDR", "MASTER_PORT"),
)


def process_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the rank of this process among all processes of one command; 0 for a single process.

    torchrun sets RANK, srun sets SLURM_PROCID. If Lightning starts the processes of a machine, only NODE_RANK and
    LOCAL_RANK are set: a number above 0 then only means that this is not the first process.
    """
    if "RANK" in environment:
        return int(environment["RANK"])
    if "SLURM_PROCID" in environment and _task_of_srun(environment):
        return int(environment["SLURM_PROCID"])
    return int(environment.get("NODE_RANK", 0)) + int(environment.get("LOCAL_RANK", 0))


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the rank of this process on its machine; 0 for a single process."""
    if "LOCAL_RANK" in environment:
        return int(environment["LOCAL_RANK"])
    return int(environment.get("SLURM_LOCALID", 0)) if _task_of_srun(environment) else 0


def launched_by_domainbert(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a stage of domainbert started this process, not torchrun, SLURM or the user."""
    return LAUNCH in environment and process_rank(environment) > 0


def launched_externally(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun or srun started all processes; otherwise a stage starts the others of this machine."""
    return "LOCAL_WORLD_SIZE" in environment or _task_of_srun(environment)


def launched_world_size(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes that torchrun or srun started for one command; 1 without them."""
    if "LOCAL_WORLD_SIZE" in environment:
        return int(environment["WORLD_SIZE"])
    return int(environment["SLURM_NTASKS"]) if _task_of_srun(environment) else 1


def _task_of_srun(environment: Mapping[str, str]) -> bool:
    """Return whether srun started this process, by Lightning's rule: the single task of an interactive job is a
    shell."""
    return "SLURM_NTASKS" in environment and environment.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def launch_id(environment: Mapping[str, str] = os.environ) -> str:
    """Return a text that is the same in all processes of one launch and unique to it; empty for a single process."""
    for names in _LAUNCH_VARIABLES:
        if names[0] in environment:
            return " ".join(environment.get(name, "") for name in names)
    return ""
