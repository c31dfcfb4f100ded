"""Trainings that are ended between, and what they leave behind, to be compared with those that were not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from domainbert.base.process import STOPPING
from domainbert.cli import main
from domainbert.settings.yaml_files import dump_yaml
from domainbert.training.module import TrainedModule

Step = tuple[int, int]  # seed and step, from 0

ENCODER = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 96,
}
TRAINING = {
    "precision": "32-true",
    "loggers": ["jsonl"],
    "trainer": {"accelerator": "cpu", "devices": 1, "log_every_n_steps": 1},
}


def pretraining(prepared: Path, **changes: Any) -> dict[str, Any]:
    """The settings of a tiny pretraining; 9 steps are somewhat more than an epoch."""
    encoder = {"class_path": "BertConfig", "init_args": ENCODER}
    usual = {"prepared": [str(prepared)], "encoder": encoder, "max_length": 64, "batch_size": 64}
    return {**TRAINING, **usual, "optim": {"lr": 5e-3}, "budget": {"max_steps": 12}, "validate_every": 3, **changes}


class Work:
    """Runs commands in this process: stage folders below `root`, each by a name.

    Attributes:
        trained: seed and step (from 0) of every step that a training began, over all commands.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trained: list[Step] = []

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def run(
        self,
        stage: str,
        name: str,
        settings: dict[str, Any],
        *options: str,
        stop: Step | None = None,
        by: int = signal.SIGTERM,
    ) -> int:
        """Run a stage and give the exit code; `stop` is in the midst of which step signal `by` comes."""
        file = self.root / f"{name}.yaml"
        file.write_text(dump_yaml(settings), encoding="utf-8")
        with self.watched(stop, by):
            return main([stage, "-c", str(file), "--out", str(self / name), *options])

    @contextmanager
    def watched(self, stop: Step | None = None, by: int = signal.SIGTERM) -> Iterator[None]:
        """Note the steps that are begun while this lasts, and send signal `by` in the midst of step `stop`."""
        real, handlers = TrainedModule.on_train_batch_start, [signal.getsignal(one) for one in STOPPING]

        def begin(module: TrainedModule, batch: dict[str, Any], batch_idx: int) -> None:
            step = module.seed, batch["step"]
            if not self.trained or self.trained[-1] != step:
                self.trained.append(step)
                if step == stop:
                    os.kill(os.getpid(), by)
            real(module, batch, batch_idx)

        with patch.object(TrainedModule, "on_train_batch_start", begin):
            yield
        assert [signal.getsignal(one) for one in STOPPING] == handlers, "given back after the training"


def outcome(folder: Path) -> dict[str, Any]:
    """Everything in a stage folder by its path, but for clocks, rates and the settings that change neither.

    `metrics.jsonl` and the manifest's metrics are read; other files are bytes.
    """
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    found: dict[str, Any] = {}
    for name, path in files.items():
        if name.endswith("metrics.jsonl"):
            found[name] = metrics(path)
        elif name == "run.json":
            found[name] = _without_rates(json.loads(path.read_text())["metrics"])
        elif name != "config.yaml":
            found[name] = path.read_bytes()
    return found


def metrics(path: Path) -> list[dict[str, float]]:
    """The lines of `metrics.jsonl`, without rates."""
    return [_without_rates(json.loads(line)) for line in path.read_text().splitlines()]


def _without_rates(values: dict[str, Any]) -> dict[str, Any]:
    rates = ("throughput/", "tokens_per_second", "model_flop_utilisation")
    return {name: value for name, value in values.items() if not name.startswith(rates)}


def assert_same_outcome(one: Path, other: Path) -> None:
    """Both folders hold the same to the bit; an error names the first different file."""
    left, right = outcome(one), outcome(other)
    assert left.keys() == right.keys()
    for name in left:
        assert left[name] == right[name], name


def losses(path: Path) -> dict[int, float]:
    """The training loss by step; no step has two."""
    lines: Sequence[dict[str, float]] = [line for line in metrics(path) if "train/loss" in line]
    found = {int(line["step"]): line["train/loss"] for line in lines}
    assert len(found) == len(lines) and list(found) == sorted(found)
    return found
