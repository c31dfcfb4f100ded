"""Trainings by several processes, started as a user starts them, each with an end: nothing outlives its test."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.forked import SECONDS

STEPS = 24
_MARK = "DOMAINBERT_TEST_LAUNCH"
_LAUNCHERS = ("SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_", "NODE_RANK", "RANK", "WORLD_SIZE", "DOMAINBERT_LAUNCH")
_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}


class Launch:
    """A command in a new session, with all processes that it starts."""

    def __init__(self, words: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self.log, self.mark = log, uuid.uuid4().hex
        usual = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
        usual |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", _MARK: self.mark}
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                words, stdout=file, stderr=file, env=usual | environment, start_new_session=True
            )

    def wait(self) -> int:
        """Return the exit code; a launch that does not end fails the test with its output."""
        try:
            return self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"still running after {SECONDS} s:\n{self.said}")

    @property
    def said(self) -> str:
        """Standard output and error of all its processes."""
        return self.log.read_text(encoding="utf-8")

    def left(self, seconds: float = 0.0) -> list[psutil.Process]:
        """Processes of this launch that still run, after waiting at most `seconds` for there to be none."""
        end = time.monotonic() + seconds
        while (found := list(filter(self._is_mine, psutil.process_iter()))) and time.monotonic() < end:
            time.sleep(0.1)
        return found

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            return alive and process.environ().get(_MARK) == self.mark
        except psutil.Error:
            return False

    def kill(self) -> None:
        """End everything that is left."""
        for process in self.left():
            process.kill()
        self.process.wait(SECONDS)


class Trainings:
    """Tiny trainings below one folder, by command line; a finished one is there for all tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.launches: list[Launch] = []

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def start(self, words: Sequence[str], **environment: str) -> Launch:
        """Start any command."""
        launch = Launch([str(word) for word in words], self.root / f"launch-{len(self.launches)}.log", environment)
        self.launches.append(launch)
        return launch

    def run(self, words: Sequence[str], code: int = 0, **environment: str) -> Launch:
        """Run a command to its end, which leaves no process behind."""
        launch = self.start(words, **environment)
        assert launch.wait() == code, launch.said
        assert not launch.left(seconds=SECONDS), launch.said
        return launch

    def pretrain(self, out: str, *options: str) -> list[str]:
        """The words after `domainbert` that pretrain into the folder `out`."""
        return ["pretrain", "-c", str(self / "pretrain.yaml"), "--out", str(self / out), *options]

    def finetune(self, out: str, *options: str) -> list[str]:
        """The words after `domainbert` that fine-tune the model of `alone` into the folder `out`."""
        return ["finetune", "-c", str(self / "finetune.yaml"), "--out", str(self / out), *options]

    def copy(self, name: str, new: str) -> Path:
        """A copy of a folder, to go on from in several ways."""
        return Path(shutil.copytree(self / name, self / new))

    def lines(self, out: str, name: str) -> dict[int, float]:
        """Return a metric by step, from a folder's `metrics.jsonl`; no step is repeated there."""
        text = (self / out / "logs" / "metrics.jsonl").read_text(encoding="utf-8")
        found = [(row["step"], row[name]) for row in map(json.loads, text.splitlines()) if name in row]
        assert len(dict(found)) == len(found)
        return dict(found)

    def json(self, out: str, name: str) -> dict[str, Any]:
        """A JSON file in a folder."""
        return json.loads((self / out / name).read_text(encoding="utf-8"))

    def checkpoints(self, out: str) -> list[str]:
        """Names of a folder's checkpoints, oldest first."""
        return sorted(path.name for path in (self / out / "checkpoints").glob("step-*"))


def domainbert(*words: str) -> list[str]:
    """A command of domainbert in one process, which may start others."""
    return [sys.executable, "-m", "domainbert.cli", *words]


def acting(*words: str) -> list[str]:
    """The same, where a process does at one step what `ACT` says; see `acting_command.py`."""
    return [sys.executable, str(Path(__file__).with_name("acting_command.py")), *words]


def torchrun(*words: str, **options: Any) -> list[str]:
    """A command in processes that torchrun starts; `script` is started instead of domainbert where it is given."""
    script = options.pop("script", None)
    target = [script] if script else ["-m", "domainbert.cli"]
    given = [_option(name, value) for name, value in options.items()]
    return [sys.executable, "-m", "torch.distributed.run", *given, *target, *words]


def _option(name: str, value: Any) -> str:
    return f"--{name.replace('_', '-')}" + ("" if value is None else f"={value}")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    """Tiny data, settings files, and `alone`: pretrained by one process."""
    made = Trainings(tmp_path_factory.mktemp("many-ranks"))
    _write_settings(made)
    made.run(domainbert("run", str(made / "data.yaml")))
    made.run(domainbert(*made.pretrain("alone")))
    yield made
    for launch in made.launches:
        launch.kill()


def _write_settings(made: Trainings) -> None:
    sizes = {"corpus_documents": 150, "train_sentences": 120, "validation_sentences": 21, "test_sentences": 10}
    sizes |= {"train_texts": 10, "validation_texts": 10, "test_texts": 10}
    corpus = {"sources": [{"path": "@sample/corpus.jsonl"}], "validation_fraction": 0.1}
    data = {
        "sample": sizes,
        "vocab": {"corpus": corpus, "vocab_size": 1024, "model_max_length": 96},
        "prepare": {"corpus": corpus, "tokenizer": "@vocab", "num_workers": 0},
    }
    training = {"precision": "32-true", "loggers": ["jsonl"]}
    training["trainer"] = {"accelerator": "cpu", "devices": 1, "log_every_n_steps": 1}
    encoder = {"class_path": "BertConfig", "init_args": {**_TINY, "max_position_embeddings": 96}}
    # each process draws its own dropout, so that only a training without dropout is the same with one and with two
    encoder["init_args"] |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    pretrain = {"encoder": encoder, "max_length": 64, "batch_size": 16, "validate_every": 6}
    pretrain |= {"optim": {"lr": 2e-3}, "budget": {"max_steps": STEPS}, **training}
    labelled = {name: str(made / f"data/sample/ner/{name}.conll") for name in ("train", "validation")}
    finetune = {"task": "Ner", "batch_size": 8, "max_epochs": 5, "seeds": [1, 2], **labelled, **training}
    finetune |= {"optim": {"lr": 2e-3, "head_lr": 5e-3}}
    recipe = {**data, "pretrain": {"prepared": ["@prepare"], **pretrain}}
    recipe["tagger"] = {"stage": "finetune", "model": "@pretrain", **finetune}
    test = {split: "@sample/ner/" + f"{split}.conll" for split in ("train", "test")}
    recipe["result"] = {"stage": "evaluate", "models": {"tagger": "@tagger"}, "task": "Ner", **test}
    files: dict[str, Any] = {"data": {"out": str(made / "data"), "stages": data}}
    files["recipe"] = {"out": str(made / "recipe"), "stages": recipe}
    files["pretrain"] = {"prepared": [str(made / "data" / "prepare")], **pretrain}
    files["finetune"] = {"model": str(made / "alone"), **finetune}
    for name, content in files.items():
        (made / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


@pytest.fixture(scope="session")
def commands() -> dict[str, Callable[..., Any]]:
    """How the commands of the tests are made; test modules cannot import from each other."""
    return {"domainbert": domainbert, "acting": acting, "torchrun": torchrun, "free_port": free_port}
