"""One process, several, sharded or not, on one machine or two: the same losses, scores and models."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from domainbert.models.loading import load_model
from tests.forked import SECONDS

pytestmark = pytest.mark.slow
CLOSE = 1e-5
FSDP = ("--trainer.strategy", "fsdp")


def slurm(rank: int, tasks: int, job: int) -> dict[str, str]:
    """What `srun --ntasks-per-node=<tasks>` on one node sets for a process."""
    values = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": 0, "SLURM_JOB_NAME": "train", "SLURM_NODEID": 0}
    values |= {"SLURM_NTASKS": tasks, "SLURM_NTASKS_PER_NODE": tasks, "SLURM_PROCID": rank, "SLURM_LOCALID": rank}
    values |= {"SLURM_NODELIST": "127.0.0.1", "SLURM_JOB_NODELIST": "127.0.0.1", "SLURM_JOB_NUM_NODES": 1}
    return {name: str(value) for name, value in {**values, "SLURM_NNODES": 1}.items()}


def launch_all(trainings, starts) -> None:
    """Start several commands of one training, `(words, environment)` each, and wait for all of them."""
    launches = [trainings.start(words, **environment) for words, environment in starts]
    codes = [launch.wait() for launch in launches]
    said = "\n".join(launch.said for launch in launches)
    assert codes == [0] * len(codes), said
    assert not [process for launch in launches for process in launch.left(seconds=SECONDS)], said


class Ways:
    """Ways to pretrain with two processes; each is used once."""

    def __init__(self, trainings, commands) -> None:
        self.trainings, self.commands = trainings, commands

    def ddp(self, out: str) -> None:
        words = self.trainings.pretrain(out, "--trainer.devices", "2")
        self.trainings.run(self.commands["domainbert"](*words))

    def fsdp(self, out: str) -> None:
        words = self.trainings.pretrain(out, "--trainer.devices", "2", *FSDP)
        self.trainings.run(self.commands["domainbert"](*words))

    def micro_batches(self, out: str) -> None:
        words = self.trainings.pretrain(out, "--trainer.devices", "2", "--micro_batch_size", "4", "--num_workers", "2")
        self.trainings.run(self.commands["domainbert"](*words))

    def layers_again(self, out: str) -> None:
        words = self.trainings.pretrain(out, "--trainer.devices", "2", *FSDP, "--activation_checkpointing", "true")
        self.trainings.run(self.commands["domainbert"](*words))

    def torchrun(self, out: str) -> None:
        words = self.commands["torchrun"](*self.trainings.pretrain(out, *FSDP), nnodes=1, nproc_per_node=2, **LOCAL)
        self.trainings.run(words)

    def two_nodes(self, out: str) -> None:
        meet = {"rdzv_backend": "c10d", "rdzv_endpoint": f"127.0.0.1:{self.commands['free_port']()}", "rdzv_id": out}
        words = self.commands["torchrun"](*self.trainings.pretrain(out), nnodes=2, nproc_per_node=1, **meet)
        launch_all(self.trainings, [(words, {}), (words, {})])

    def two_nodes_by_rank(self, out: str) -> None:
        meet = {"master_addr": "127.0.0.1", "master_port": self.commands["free_port"](), "nnodes": 2}
        pretrain = self.trainings.pretrain(out)
        nodes = [self.commands["torchrun"](*pretrain, node_rank=n, nproc_per_node=1, **meet) for n in range(2)]
        launch_all(self.trainings, [(words, {}) for words in nodes])

    def slurm(self, out: str) -> None:
        words = self.commands["domainbert"](*self.trainings.pretrain(out))
        job = 1_000_000 + os.getpid() % 9000
        launch_all(self.trainings, [(words, slurm(rank, 2, job)) for rank in range(2)])

    def script(self, out: str) -> None:
        script = Path(__file__).parents[2] / "configs" / "cluster" / "torchrun.sh"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.trainings.run([script, *self.trainings.pretrain(out)], DEVICES="2", PATH=path)

    def interactive(self, out: str) -> None:
        """In a shell that srun has started, Lightning starts the second process."""
        words = self.commands["domainbert"](*self.trainings.pretrain(out, "--trainer.devices", "2"))
        self.trainings.run(words, **slurm(0, 1, 7) | {"SLURM_JOB_NAME": "bash"})


LOCAL = {"rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0"}  # what --standalone means


def assert_same_training(trainings, out: str, wanted: str, tolerance: float = CLOSE) -> None:
    """Losses of every step, all validation metrics, and the models are equal but for rounding."""
    assert trainings.lines(out, "train/loss") == pytest.approx(trainings.lines(wanted, "train/loss"), abs=tolerance)
    histories = [trainings.json(name, "run.json")["metrics"]["history"] for name in (out, wanted)]
    assert len(histories[0]) == len(histories[1]) == 4
    for found, expected in zip(*histories, strict=True):
        assert found == pytest.approx(expected, rel=tolerance)
    assert_same_weights(trainings / out, trainings / wanted, tolerance)


def assert_same_weights(folder: Path, wanted: Path, tolerance: float = CLOSE) -> None:
    found, expected = (load_file(path / "model.safetensors") for path in (folder, wanted))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name] - tensor).abs().max() < tolerance, name


@pytest.mark.parametrize("way", [name for name in vars(Ways) if not name.startswith("_")])
def test_two_processes_train_as_one(trainings, commands, way):
    getattr(Ways(trainings, commands), way)(way)
    assert_same_training(trainings, way, "alone")
    assert trainings.json(way, "run.json")["state"] == "done"
    assert not (trainings / way / "checkpoints").exists()
    model = load_model(trainings / way, "masked_lm")[0]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters == trainings.json(way, "run.json")["metrics"]["num_parameters"]


@pytest.mark.parametrize("family", ["albert", "deberta-v3", "electra", "modernbert", "roberta", "xlm-roberta"])
def test_every_family_trains_sharded_as_alone(trainings, commands, family):
    encoder = (
        "--encoder",
        f"{family}-tiny",
        "--dropout",
        "0.0",
    )  # MPNet differs from BERT only in its bias, which DeBERTa has as well
    trainings.run(commands["domainbert"](*trainings.pretrain(f"{family}-alone", *encoder)))
    words = trainings.pretrain(f"{family}-fsdp", *encoder, "--trainer.devices", "2", *FSDP)
    trainings.run(commands["domainbert"](*words))
    assert_same_training(trainings, f"{family}-fsdp", f"{family}-alone")


def test_muon_trains_sharded_as_alone(trainings, commands):
    """Each process orthogonalises whole matrices, in bf16, which amplifies the rounding of sums."""
    options = ("--encoder", "modernbert-tiny", "--dropout", "0.0", "--optim.name", "muon")
    trainings.run(commands["domainbert"](*trainings.pretrain("muon-alone", *options)))
    words = trainings.pretrain("muon-fsdp", *options, "--trainer.devices", "2", *FSDP)
    trainings.run(commands["domainbert"](*words))
    assert_same_training(trainings, "muon-fsdp", "muon-alone", tolerance=1e-3)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_what_two_processes_saved_one_and_four_go_on_from(trainings, commands, strategy):
    stopped = f"stopped-{strategy}"
    words = trainings.pretrain(stopped, "--trainer.devices", "2", "--trainer.strategy", strategy)
    act = json.dumps({"rank": 0, "step": 9, "signal": "SIGTERM"})
    trainings.run(commands["acting"](*words), code=75, ACT=act)
    assert trainings.checkpoints(stopped)[-1] == "step-00000010"
    for devices, options in ((1, ()), (4, ("--trainer.strategy", strategy))):
        out = f"{stopped}-{devices}"
        trainings.copy(stopped, out)
        words = trainings.pretrain(out, "--resume", "auto", "--trainer.devices", str(devices), *options)
        assert "resuming from step 10" in trainings.run(commands["domainbert"](*words)).said
        assert_same_training(trainings, out, "alone")
        assert trainings.json(out, "run.json")["resumed"] is True


def test_a_sharded_training_goes_on_while_its_layers_wait(trainings, commands):
    """Their optimiser state begins with their first step, not when the training is resumed before it."""
    options = ("--trainer.devices", "2", *FSDP, "--embedding_steps", "12")
    trainings.run(commands["domainbert"](*trainings.pretrain("waiting-whole", *options)))
    act = json.dumps({"rank": 0, "step": 9, "signal": "SIGTERM"})
    trainings.run(commands["acting"](*trainings.pretrain("waiting", *options)), code=75, ACT=act)
    words = trainings.pretrain("waiting", "--resume", "auto", *options)
    assert "resuming from step 10" in trainings.run(commands["domainbert"](*words)).said
    assert_same_training(trainings, "waiting", "waiting-whole")
