from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from domainbert.base.process import (
    LAUNCH,
    launch_id,
    launched_by_domainbert,
    launched_externally,
    launched_world_size,
    local_rank,
    process_rank,
)
from tests.refusals import refused

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "MASTER_ADDR": "node-1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
}
CHILD = {LAUNCH: "abc", "LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}  # of Lightning's launcher


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        (TORCHRUN, 5),
        ({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0"}, 0),
        (SLURM, 3),
        ({**SLURM, "SLURM_PROCID": "0"}, 0),
        ({**SLURM, "RANK": "2"}, 2),  # torchrun inside a SLURM job
        ({**SLURM, "SLURM_JOB_NAME": "pretrain"}, 3),
        ({**SLURM, "SLURM_JOB_NAME": "interactive"}, 0),
        ({**SLURM, "SLURM_JOB_NAME": "bash"}, 0),
        ({**SLURM, "SLURM_PROCID": "0", **TORCHRUN}, 5),
        (CHILD, 1),
        ({**CHILD, "LOCAL_RANK": "0", "NODE_RANK": "1"}, 1),
        ({LAUNCH: "abc"}, 0),
    ],
)
def test_rank(environment: dict[str, str], rank: int) -> None:
    assert process_rank(environment) == rank


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        (TORCHRUN, 1),
        (SLURM, 1),
        ({**SLURM, **TORCHRUN, "LOCAL_RANK": "3"}, 3),
        ({**SLURM, "SLURM_JOB_NAME": "bash"}, 0),
        (CHILD, 1),
        ({LAUNCH: "abc"}, 0),
    ],
)
def test_rank_on_a_machine(environment: dict[str, str], rank: int) -> None:
    assert local_rank(environment) == rank


@pytest.mark.parametrize(
    ("environment", "here"),
    [
        ({}, False),
        ({LAUNCH: "abc"}, False),
        (CHILD, True),
        (TORCHRUN, False),
        (SLURM, False),
        ({**CHILD, "LOCAL_RANK": "0"}, False),
    ],
)
def test_only_what_a_stage_started_beside_itself_was_launched_here(environment: dict[str, str], here: bool) -> None:
    assert launched_by_domainbert(environment) == here


@pytest.mark.parametrize(
    ("environment", "whole"),
    [
        ({}, False),
        (CHILD, False),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "4"}, True),
        (SLURM, True),
        ({**SLURM, "SLURM_JOB_NAME": "bash"}, False),
    ],
)
def test_torchrun_and_srun_lay_all_processes_out(environment: dict[str, str], whole: bool) -> None:
    assert launched_externally(environment) == whole


def test_processes_of_one_launch_have_one_id() -> None:
    same = [
        [TORCHRUN, {**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0"}],
        [SLURM, {**SLURM, "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}],
        [CHILD, {LAUNCH: "abc"}],
        [{"MASTER_ADDR": "a", "MASTER_PORT": "1", "RANK": rank} for rank in "01"],
    ]
    ids = [{launch_id(environment) for environment in environments} for environments in same]
    assert [len(one) for one in ids] == [1, 1, 1, 1] and all(all(one) for one in ids)
    assert len(set.union(*ids)) == 4
    assert launch_id({}) == ""


def test_another_launch_has_another_id() -> None:
    others = [
        TORCHRUN,
        {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"},
        {**TORCHRUN, "MASTER_PORT": "29501"},
        SLURM,
        {**SLURM, "SLURM_JOB_ID": "4712"},
        {**SLURM, "SLURM_STEP_ID": "1"},
        {**SLURM, "SLURM_RESTART_COUNT": "1"},  # requeued: the same job again
        CHILD,
        {**CHILD, LAUNCH: "abd"},
    ]
    assert all(launch_id(one) != launch_id(other) for one, other in combinations(others, 2))


@pytest.mark.parametrize("text", ["abc", "", "-1", "1.5"])
@pytest.mark.parametrize(
    ("read", "environment", "name"),
    [
        (process_rank, {}, "RANK"),
        (process_rank, {}, "NODE_RANK"),
        (process_rank, {}, "LOCAL_RANK"),
        (process_rank, SLURM, "SLURM_PROCID"),
        (local_rank, {}, "LOCAL_RANK"),
        (local_rank, SLURM, "SLURM_LOCALID"),
        (launched_world_size, {"LOCAL_WORLD_SIZE": "2"}, "WORLD_SIZE"),
        (launched_world_size, {}, "SLURM_NTASKS"),
    ],
)
def test_a_variable_that_is_no_number_is_named(read: Any, environment: dict[str, str], name: str, text: str) -> None:
    with refused(where=f"environment variable {name}", found=f"'{text}'"):
        read({**environment, name: text})


def test_variables_of_torchrun_belong_together() -> None:
    with refused(where="environment variable WORLD_SIZE", found="''..."):
        launched_world_size({"LOCAL_WORLD_SIZE": "2"})
