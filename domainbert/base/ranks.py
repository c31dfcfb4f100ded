"""The rank of this process among several, from the environment alone: no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping

LAUNCH = "DOMAINBERT_LAUNCH"  # set while a stage runs: one text for all the processes that it starts itself

_OF_A_LAUNCH = (
    (LAUNCH,),
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ("MASTER_ADDR", "MASTER_PORT"),
)


def process_rank(environment: Mapping[str, str] = os.environ) -> int:
    """The number of this process among all that work on one command; 0 where it is alone.

    torchrun sets RANK, srun sets SLURM_PROCID. Where Lightning starts the processes of a machine, only NODE_RANK and
    LOCAL_RANK are known: then a number above 0 only means that the process is not the first.
    """
    if "RANK" in environment:
        return int(environment["RANK"])
    if "SLURM_PROCID" in environment and _task_of_srun(environment):
        return int(environment["SLURM_PROCID"])
    return int(environment.get("NODE_RANK", 0)) + int(environment.get("LOCAL_RANK", 0))


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """The number of this process among those of its machine; 0 where it is alone."""
    if "LOCAL_RANK" in environment:
        return int(environment["LOCAL_RANK"])
    return int(environment.get("SLURM_LOCALID", 0)) if _task_of_srun(environment) else 0


def launched_here(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a stage started this process beside itself, as opposed to torchrun, SLURM or the user."""
    return LAUNCH in environment and process_rank(environment) > 0


def laid_out(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun or srun started all processes; a stage starts the others of this machine itself if not."""
    return "LOCAL_WORLD_SIZE" in environment or _task_of_srun(environment)


def started_together(environment: Mapping[str, str] = os.environ) -> int:
    """The number of processes that torchrun or srun started for one command; 1 if neither did."""
    if "LOCAL_WORLD_SIZE" in environment:
        return int(environment["WORLD_SIZE"])
    return int(environment["SLURM_NTASKS"]) if _task_of_srun(environment) else 1


def _task_of_srun(environment: Mapping[str, str]) -> bool:
    """Whether srun started this process, by Lightning's rule: the only task of an interactive job is a shell."""
    return "SLURM_NTASKS" in environment and environment.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def launch_id(environment: Mapping[str, str] = os.environ) -> str:
    """A text that all processes of one launch have in common, and no other launch has; empty for a single process."""
    for names in _OF_A_LAUNCH:
        if names[0] in environment:
            return " ".join(environment.get(name, "") for name in names)
    return ""
