"""A signal to one of two processes, or to all: they stop after the same step, save once, and go on bit by bit."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.forked import SECONDS

pytestmark = pytest.mark.slow
TWO = ("--trainer.devices", "2", "--dropout", "0.1")
STEP = 7  # of the signal, counted from 0: it is step 8 that is made to its end


@pytest.fixture(scope="module")
def uninterrupted(trainings, commands):
    """Two processes, with dropout."""
    trainings.run(commands["domainbert"](*trainings.pretrain("two", *TWO)))
    return trainings / "two"


def act(**what):
    """The environment in which a process sends a signal during step 8."""
    return {"ACT": json.dumps({"step": STEP, **what})}


def assert_stopped(trainings, out: str, name: str, said: str, step: int = STEP + 1) -> None:
    """Saved after the step of the signal, once, and the folder says what happened and how to go on."""
    status = trainings.json(out, "run.json")
    assert (status["state"], status["stage"]) == ("stopped", "pretrain")
    assert status["reason"] == f"stopped by {name} after step {step}; the state is saved"
    assert status["resume_command"] == f"domainbert pretrain -c {trainings / out / 'config.yaml'} --resume auto"
    assert status["resume_command"] in said and "Traceback" not in said
    assert trainings.checkpoints(out)[-1] == f"step-{step:08d}"
    assert trainings.checkpoints(out)[:-1] == ([] if step <= 6 else ["step-00000006"]), "of the validation"
    assert list(trainings.lines(out, "train/loss")) == list(range(1, step + 1))


def assert_goes_on(trainings, commands, out: str, uninterrupted: Path, *options: str) -> None:
    """To the very bits of a training that was never stopped."""
    words = trainings.json(out, "run.json")["resume_command"].split()[1:]
    trainings.run(commands["domainbert"](*words, *options))
    for name in ("train/loss", "train/grad_norm", "validation/loss"):
        assert trainings.lines(out, name) == trainings.lines("two", name)
    models = [(folder / "model.safetensors").read_bytes() for folder in (trainings / out, uninterrupted)]
    assert models[0] == models[1]
    assert trainings.json(out, "run.json")["state"] == "done"
    assert not (trainings / out / "checkpoints").exists()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_a_signal_to_one_process_stops_both(trainings, commands, uninterrupted, name, rank):
    out = f"{name}-{rank}"
    words = commands["acting"](*trainings.pretrain(out, *TWO))
    said = trainings.run(words, code=75, **act(rank=rank, signal=name)).said
    assert_stopped(trainings, out, name, said)
    if (name, rank) == ("SIGTERM", 1):
        assert_goes_on(trainings, commands, out, uninterrupted)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_all_processes_and_their_loader_workers(trainings, commands, uninterrupted, name):
    """As SLURM and Ctrl-C send it."""
    out = f"{name}-group"
    words = commands["acting"](*trainings.pretrain(out, *TWO, "--num_workers", "2"))
    said = trainings.run(words, code=75, **act(rank=1, signal=name, to="group")).said
    assert_stopped(trainings, out, name, said)
    assert_goes_on(trainings, commands, out, uninterrupted)


def test_a_signal_during_validation_is_obeyed_after_it(trainings, commands, uninterrupted):
    """The validation counts, and is not made again."""
    words = commands["acting"](*trainings.pretrain("validating", *TWO))
    action = act(rank=1, signal="SIGTERM", step=6, during="validation")
    assert_stopped(trainings, "validating", "SIGTERM", trainings.run(words, code=75, **action).said, step=6)
    assert trainings.lines("validating", "validation/loss") == {
        step: loss for step, loss in trainings.lines("two", "validation/loss").items() if step == 6
    }
    assert_goes_on(trainings, commands, "validating", uninterrupted)


def test_a_second_interrupt_ends_at_once(trainings, commands, uninterrupted):
    """The second interrupt writes no checkpoint; the previous one stays."""
    launch = trainings.start(commands["acting"](*trainings.pretrain("twice", *TWO)),
                             **act(rank=0, signal="SIGINT", times=2))  # fmt: skip
    assert launch.wait() not in (0, 75), launch.said
    assert not launch.left(seconds=SECONDS)
    assert trainings.checkpoints("twice") == ["step-00000006"]
    assert_goes_on(trainings, commands, "twice", uninterrupted)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_death_of_one_process_ends_the_other(trainings, commands, uninterrupted, rank):
    """As when memory runs out; the loader's workers end too, and the last checkpoint is good."""
    out = f"killed-{rank}"
    words = commands["acting"](*trainings.pretrain(out, *TWO, "--num_workers", "1"))
    launch = trainings.start(words, **act(rank=rank, signal="SIGKILL"))
    code = launch.wait()
    assert code in (2, -signal.SIGKILL), launch.said
    if code == 2:  # before Lightning kills the first process for the death of one it has started
        assert "domainbert: another process of the training ended early (Connection " in launch.said
        assert trainings.json(out, "run.json")["reason"].startswith("another process of the training ended early")
    assert "Traceback" not in launch.said
    assert not launch.left(seconds=SECONDS), launch.said
    assert trainings.checkpoints(out) == ["step-00000006"]
    assert_goes_on(trainings, commands, out, uninterrupted)


@pytest.mark.parametrize("to", ["group", "self"])
def test_a_signal_while_the_first_process_waits_for_the_other(trainings, commands, to):
    """The other one, which is not ready yet, does not go alone: nobody would tell the first."""
    out = f"start-{to}"
    action = act(rank=1, signal="SIGTERM", to=to, during="start")
    said = trainings.run(commands["acting"](*trainings.pretrain(out, *TWO)), code=75, **action).said
    assert trainings.json(out, "run.json")["reason"] == "stopped by SIGTERM after step 1; the state is saved", said


def test_no_process_outlives_one_that_is_killed_while_it_waits(trainings, commands):
    action = act(rank=1, signal="SIGKILL", to="parent", during="start")
    launch = trainings.start(commands["acting"](*trainings.pretrain("start-killed", *TWO)), **action)
    assert launch.wait() == -signal.SIGKILL, launch.said
    assert not launch.left(seconds=SECONDS), launch.said


def test_torchrun_passes_sigterm_on_and_calls_it_a_failure(trainings, commands, uninterrupted):
    """Its own exit code is never 75; run.json distinguishes a stop from a failure."""
    torchrun = commands["torchrun"]
    words = torchrun(
        *trainings.pretrain("elastic", *TWO, "--budget.max_steps", "400"), standalone=None, nproc_per_node=2
    )
    launch = trainings.start(words)
    metrics, end = trainings / "elastic" / "logs" / "metrics.jsonl", time.monotonic() + SECONDS
    while not metrics.exists() and time.monotonic() < end:
        time.sleep(0.05)
    launch.process.send_signal(signal.SIGTERM)
    assert launch.wait() == 1, launch.said
    assert not launch.left(seconds=SECONDS)
    step = max(trainings.lines("elastic", "train/loss"))
    assert trainings.json("elastic", "run.json")["reason"].startswith(f"stopped by SIGTERM after step {step};")
    assert trainings.checkpoints("elastic")[-1] == f"step-{step:08d}"


def test_a_signal_to_a_process_of_torchrun(trainings, commands, uninterrupted):
    words = commands["torchrun"](
        *trainings.pretrain("elastic-rank", *TWO), standalone=None, nproc_per_node=2, script=commands["acting"]()[1]
    )
    launch = trainings.start(words, **act(rank=1, signal="SIGTERM"))
    assert launch.wait() == 1, launch.said
    assert "exitcode  : 75" in launch.said
    assert not launch.left(seconds=SECONDS)
    assert trainings.json("elastic-rank", "run.json")["state"] == "stopped"
    assert_goes_on(trainings, commands, "elastic-rank", uninterrupted)


@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_starts_again_after_a_death(trainings, commands, uninterrupted, rank):
    """As after a lost node: both processes are started again, and go on from the last checkpoint to the same bits."""
    out = f"restarted-{rank}"
    words = trainings.pretrain(out, *TWO, "--resume", "auto")
    how = {"standalone": None, "nproc_per_node": 2, "max_restarts": 1, "script": commands["acting"]()[1]}
    launch = trainings.run(commands["torchrun"](*words, **how), **act(rank=rank, signal="SIGKILL"))
    assert "Traceback" not in launch.said.replace("Traceback : Signal 9 (SIGKILL)", "")
    for name in ("train/loss", "train/grad_norm", "validation/loss"):
        assert trainings.lines(out, name) == trainings.lines("two", name)
    models = [(folder / "model.safetensors").read_bytes() for folder in (trainings / out, uninterrupted)]
    assert models[0] == models[1]
    assert trainings.json(out, "run.json")["state"] == "done"
