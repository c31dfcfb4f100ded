"""`kill -9` at any point of a training, and going on: the losses are the same as without kills.

The killed processes are forked from one that has imported everything, which spares each of them ten seconds; each runs
`domainbert.cli.main` as the command does. The first and the last run are the command itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from domainbert.settings.yaml_files import dump_yaml
from tests.resuming import assert_same_outcome, losses, pretraining

STEPS = 160
PLACES = ("step", "accumulation", "optimiser", "save", "sync", "rename", "prune", "metrics", "validation", "epoch")
KILLS = 20

KILLER = """
import os, random, shutil, signal, sys, time
from pathlib import Path

import torch
from domainbert.cli import main
from domainbert.pretraining.module import Pretraining
from domainbert.training import checkpoint_files, checkpoints, optimisers, throughput, trainer

command, folder, places, kills = sys.argv[5:], Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])
throughput.measured_peak_flops = lambda *_: 1e12
rows_of_epoch, batch_size = map(int, sys.argv[4].split("/"))


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def in_the_midst(owner, name, calls, after=False, only=lambda arguments: True):
    '''Die in the given call of a function, before or after its work.'''
    real, left = getattr(owner, name), [calls]

    def counted(*arguments, **named):
        if not only(arguments):
            return real(*arguments, **named)
        left[0] -= 1
        if left[0] == 0:
            if after:
                real(*arguments, **named)
            die()
        return real(*arguments, **named)

    setattr(owner, name, counted)


def prepare_to_die(place):
    module, soon = Pretraining, random.randint(4, 9)
    if place == "step":
        in_the_midst(module, "training_step", 2 * soon)
    elif place == "accumulation":
        in_the_midst(module, "training_step", 2 * soon + 1)
    elif place == "optimiser":
        in_the_midst(optimisers.CombinedOptimizer, "step", soon, after=True)
    elif place == "save":
        in_the_midst(checkpoints, "_write_state", 2, after=True)
    elif place == "sync":
        in_the_midst(os, "fsync", random.randint(5, 9))
    elif place == "rename":
        in_the_midst(Path, "rename", 2, after=random.random() < 0.5, only=lambda paths: "unfinished" in paths[0].name)
    elif place == "prune":
        in_the_midst(shutil, "rmtree", 1, only=lambda paths: str(paths[0]).endswith(".removed"))
    elif place == "metrics":
        in_the_midst(trainer.MetricsFile, "log_metrics", soon, after=random.random() < 0.5)
    elif place == "validation":
        in_the_midst(module, "validation_step", 1, after=True)
    elif place == "epoch":
        in_the_midst(module, "training_step", 1, only=lambda step: at_an_epoch(step[1]["step"]))


def at_an_epoch(step):
    '''Whether a batch spans the end of a pass.'''
    return step * batch_size // rows_of_epoch != ((step + 1) * batch_size - 1) // rows_of_epoch


def wait_for_a_step():
    '''Until the child, which first rewrites the lines of the one before, has added a line.'''
    file, end = folder / "logs/metrics.jsonl", time.monotonic() + 60
    before = file.stat().st_ino
    while file.stat().st_ino == before and time.monotonic() < end:
        time.sleep(0.01)
    size = file.stat().st_size
    while file.stat().st_size == size and time.monotonic() < end:
        time.sleep(0.01)


random.seed(0)
torch.set_num_threads(1)
count = 0
while count < kills:
    child = os.fork()
    if child == 0:
        if count < len(places):
            prepare_to_die(places[count])
        os._exit(main(command))
    if count >= len(places):
        wait_for_a_step()
        time.sleep(random.uniform(0.0, 0.4))
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        sys.exit(f"kill {count}: the training came to its end, {os.WEXITSTATUS(status)}")
    newest = max((path.name for path in (folder / "checkpoints").glob("step-*")), default="none")
    print(f"kill {count} ({places[count] if count < len(places) else 'at random'}): {newest}", file=sys.stderr)
    count += 1
"""


@pytest.mark.slow
def test_twenty_kills_give_the_losses_of_none(runs: Any, tmp_path: Path) -> None:
    settings = pretraining(
        runs / "prepare",
        budget={"max_steps": STEPS},
        optim={"name": "muon", "lr": 2e-3},
        micro_batch_size=32,
        validate_every=10,
        checkpoint_every=3,
    )
    (tmp_path / "pretrain.yaml").write_text(dump_yaml(settings), encoding="utf-8")
    command = ["pretrain", "-c", str(tmp_path / "pretrain.yaml"), "--out"]
    rows = epoch_of(run([*command, str(tmp_path / "whole")]).stdout)
    parts = tmp_path / "parts"
    go_on = [*command, str(parts), "--resume", "auto"]
    killer = [sys.executable, "-c", KILLER, str(parts), ",".join(PLACES), str(KILLS), f"{rows}/64", *go_on]
    done = subprocess.run(killer, env=one_thread(), capture_output=True, text=True, timeout=600)
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\nkill ") + done.stderr.startswith("kill ") == KILLS
    run(go_on)
    assert list(losses(parts / "logs/metrics.jsonl")) == list(range(1, STEPS + 1))
    assert_same_outcome(tmp_path / "whole", parts)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "domainbert.cli", *command],
        env=one_thread(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def epoch_of(printed: str) -> int:
    """Rows of the corpus, as `pretrain` says them."""
    line = next(line for line in printed.splitlines() if " rows of " in line)
    return int(line.split()[0].replace(",", ""))
