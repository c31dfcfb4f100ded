"""What torchrun, srun and Lightning say in the environment, and the example scripts, without any of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from domainbert.base.process import (
    launched_world_size,
)
from domainbert.cli import main
from domainbert.training.trainer import _processes_of_launcher
from tests.forked import SECONDS

CLUSTER = Path(__file__).parents[2] / "configs" / "cluster"
SRUN = {"SLURM_JOB_ID": "81", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8", "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_JOB_NUM_NODES": "3", "SLURM_NNODES": "2", "SLURM_PROCID": "6", "SLURM_LOCALID": "2",
        "SLURM_NODEID": "1", "SLURM_JOB_NAME": "domainbert"}  # fmt: skip
SHELL = SRUN | {"SLURM_JOB_NAME": "bash", "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "a",
            "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}  # fmt: skip
CHILD = {"DOMAINBERT_LAUNCH": "b", "LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}


def test_how_many_were_started_together():
    environments = ({}, CHILD, SHELL, SRUN, TORCHRUN, TORCHRUN | SRUN, SRUN | {"SLURM_NTASKS": "1"})
    assert [launched_world_size(environment) for environment in environments] == [1, 1, 1, 8, 8, 8, 1]


def test_force_is_refused_before_anything_is_removed(tmp_path, monkeypatch, capsys):
    """By every process: the first would begin to replace folders before the refusal of the others ended it."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"out: {tmp_path}/out\nstages: {{sample: {{}}}}\n", encoding="utf-8")
    for rank in ("0", "1"):
        for name, value in (TORCHRUN | {"RANK": rank}).items():
            monkeypatch.setenv(name, value)
        assert main(["run", str(recipe), "--force"]) == 2
        assert "--force: cannot be used in a launch of several processes" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [recipe]


def test_a_dry_run_waits_for_nobody(tmp_path, monkeypatch):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"out: {tmp_path}/out\nstages: {{sample: {{}}}}\n", encoding="utf-8")
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert main(["run", str(recipe), "--dry-run"]) == 0


def test_devices_and_nodes_are_those_of_the_launcher(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    assert _processes_of_launcher({}) == {}
    assert _processes_of_launcher(TORCHRUN) == {"devices": 4, "num_nodes": 2}
    assert _processes_of_launcher(SRUN) == {}, "Lightning looks at the environment of the process"
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    assert _processes_of_launcher(SRUN) == {"devices": 4, "num_nodes": 2}
    assert _processes_of_launcher(TORCHRUN | SRUN) == {"devices": 4, "num_nodes": 2}
    monkeypatch.setenv("SLURM_JOB_NAME", "bash")
    assert _processes_of_launcher(SHELL) == {}


@pytest.mark.parametrize(("code", "requeued"), [(0, ""), (2, ""), (75, "requeue 81\n"), (137, "")])
def test_the_slurm_script_requeues_what_was_stopped_and_nothing_else(tmp_path, code, requeued):
    stand_ins = {"srun": f'printf "%s\\n" "$*" > "{tmp_path}/srun.said"; exit {code}'}
    stand_ins["scontrol"] = f'printf "%s\\n" "$*" > "{tmp_path}/scontrol.said"'
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "81"}
    words = ["bash", str(CLUSTER / "slurm.sbatch"), "a b.yaml", "--out", "runs"]
    assert subprocess.run(words, env=environment, timeout=SECONDS, check=False).returncode == code
    said = (tmp_path / "srun.said").read_text(encoding="utf-8")
    assert said == "--wait=120 domainbert run a b.yaml --out runs\n"
    scontrol = tmp_path / "scontrol.said"
    assert (scontrol.read_text(encoding="utf-8") if scontrol.exists() else "") == requeued


def test_the_slurm_script_asks_for_what_stopping_needs():
    options = [line.split(maxsplit=1)[1] for line in (CLUSTER / "slurm.sbatch").read_text().splitlines()
               if line.startswith("#SBATCH")]  # fmt: skip
    assert {"--signal=USR1@120", "--requeue", "--open-mode=append", "--ntasks-per-node=4"} <= set(options)
    assert not [option for option in options if option.startswith(("--ntasks=", "--gpus-per-task", "--signal=B"))]


@pytest.mark.parametrize("name", ["slurm.sbatch", "torchrun.sh"])
def test_scripts_are_valid_and_can_be_run(name):
    assert subprocess.run(["bash", "-n", str(CLUSTER / name)], timeout=SECONDS, check=False).returncode == 0
    assert os.access(CLUSTER / name, os.X_OK)
