"""Checkpoints on a disk that is really full, and by processes that are really killed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import SECONDS

FILL = """
import sys
from pathlib import Path
import torch
from domainbert.base.errors import DomainbertError
from domainbert.training.checkpoint_files import newest_checkpoint, write_checkpoint
from domainbert.training.checkpoints import _num_bytes, _write_state

folder = Path(sys.argv[1]) / "checkpoints"
for step, size in ((10, 1_000), (20, 100_000), (30, 2_000_000)):
    state = {"a": torch.full((size,), float(step))}
    try:
        write_checkpoint(folder, step, _num_bytes(state), lambda path: _write_state(state, path))
    except DomainbertError as error:
        print(error)
found = newest_checkpoint(folder, print)
print(found.step, torch.load(found.file, weights_only=True)["a"].eq(20.0).all().item(), len(list(folder.iterdir())))
"""


@pytest.mark.slow
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    mount = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"', str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    command = [*mount, sys.executable, "-c", FILL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    failed, last = done.stdout.splitlines()
    path = re.escape(str(tmp_path / "checkpoints/step-00000030"))
    assert re.fullmatch(
        rf"{path}: the checkpoint could not be written \(.*\); it needs 8,000,000 bytes, 1,\d{{3}},\d{{3}} are free",
        failed,
    )
    assert last == "20 True 2"


KILLS = 200
WRITER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from domainbert.training.checkpoint_files import newest_checkpoint, write_checkpoint
from domainbert.training.checkpoints import _num_bytes, _write_state

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
values = torch.arange(5_000_000, dtype=torch.float32)


def state_of(step):
    return {"step": step, "weights": values + step, "callbacks": {"History": {"rows": [{"step": step, "loss": 0.5}]}}}


def write_on(step):
    while True:
        step += 1
        state = state_of(step)
        write_checkpoint(folder, step, _num_bytes(state), lambda path: _write_state(state, path), 1.0 / (step % 7 + 1))


def check():
    assert len(list(folder.glob("step-*"))) <= 4
    unfinished = [path.name for path in folder.glob(".*")]
    warnings = []
    found = newest_checkpoint(folder, warnings.append)
    names = [path.name for path in folder.iterdir()]
    assert warnings == [] and all(name.startswith("step-") for name in names) and len(names) <= 3, (warnings, names)
    if found is None:
        return 0, unfinished
    state, wanted = torch.load(found.file, weights_only=True), state_of(found.step)
    assert torch.equal(state.pop("weights"), wanted.pop("weights")) and state == wanted
    return found.step, unfinished


def names():
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def wait_for_a_save(finished):
    before = names()
    while not (any(name.startswith("step-") for name in names() - before) if finished else names() != before):
        time.sleep(0.001)


random.seed(0)
step, hits = 0, 0
for kill in range(kills):
    child = os.fork()
    if child == 0:
        write_on(step)
    wait_for_a_save(finished=kill % 2 == 0)
    time.sleep(random.uniform(0.0, 0.1))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    before = step
    step, unfinished = check()
    assert step >= before
    hits += bool(unfinished)
print(step, hits, torch.get_num_threads())
"""


@pytest.mark.slow
def test_two_hundred_kills_during_saves(tmp_path: Path) -> None:
    """With TMPDIR on another file system, where a save that goes through it would not be atomic."""
    elsewhere = Path("/dev/shm")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if elsewhere.is_dir() and elsewhere.stat().st_dev != tmp_path.stat().st_dev:
        environment["TMPDIR"] = str(elsewhere)
    command = [sys.executable, "-c", WRITER, str(tmp_path / "checkpoints"), str(KILLS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    step, hits, threads = map(int, done.stdout.split())
    assert threads == 1 and step > KILLS / 4, "checkpoints are written between the kills"
    assert hits > KILLS / 4, "many a kill hits a save"
