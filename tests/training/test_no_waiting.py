"""No training reads a number of the device in a step that is not logged: a GPU would have to be waited for."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from torch.utils._python_dispatch import TorchDispatchMode

from domainbert.cli import main
from domainbert.training.lightning_internals import is_logged_step
from tests.golden.write import HERE

EVERY, STEPS = 4, 6
# Operators whose results have to be known on the host; `bincount` and an index by booleans look for the largest number.
WAITING = {
    "_local_scalar_dense",
    "nonzero",
    "bincount",
    "masked_select",
    "_unique2",
    "is_nonzero",
    "equal",
    "lift_fresh",
}
# What runs on a CPU alone: dropout text by text, and what builds batches, which workers do for a GPU.
ON_THE_HOST = ("encoders/dropout.py", "/data/", "pretraining/batches.py")
ON_THE_HOST += ("training/loaders.py",)  # a loader without workers makes tensors of arrays
TRAININGS = {
    "pretrain",
    "pretrain-phases",
    "distill",
    "distill-narrow",
    "ner-linear",
    "ner-crf",
    "ner-student",
    "classes",
}


class Waits(TorchDispatchMode):
    """Counts the operators that wait, by the line of the package that asks."""

    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_booleans = name == "index" and any(one is not None and one.dtype == torch.bool for one in args[1])
        if name in WAITING or by_booleans:
            lines = list(_package_lines())
            if not any(part in line for part in ON_THE_HOST for line in lines):
                self.found[f"{name} in {lines[0]}"] += 1
        return func(*args, **(kwargs or {}))


def _package_lines() -> Iterator[str]:
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if "/domainbert/" in file:
            yield f"{file.rpartition('/domainbert/')[2]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]


@pytest.mark.slow
def test_no_step_between_logged_ones_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        (HERE / "recipe.yaml")
        .read_text(encoding="utf-8")
        .replace("log_every_n_steps: 1", f"log_every_n_steps: {EVERY}")
    )
    text = text.replace("max_steps: 10", f"max_steps: {STEPS}").replace("data: data", f"data: {HERE / 'data'}")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text, encoding="utf-8")
    found: dict[str, Counter[str]] = {}
    steps: Counter[str] = Counter()
    advance = _TrainingEpochLoop.advance

    def counted(loop: Any, fetcher: Any) -> None:
        trainer: Trainer = loop.trainer
        if is_logged_step(trainer):
            advance(loop, fetcher)
            return
        stage = Path(str(trainer.default_root_dir)).relative_to(tmp_path / "out").parts[0]
        steps[stage] += 1
        with Waits(found.setdefault(stage, Counter())):
            advance(loop, fetcher)

    monkeypatch.setattr(_TrainingEpochLoop, "advance", counted)
    monkeypatch.setattr("domainbert.training.optimisers._on_one_gpu", lambda parameter: True)
    for module in ("number_watch", "callbacks"):
        monkeypatch.setattr(
            f"domainbert.training.{module}.can_read_without_waiting", lambda trainer, value: is_logged_step(trainer)
        )
    monkeypatch.chdir(tmp_path)
    options = ["--only", ",".join(["vocab", "prepare", *sorted(TRAININGS)]), "--vars.cache", str(tmp_path / "labels")]
    assert main(["run", str(recipe), "--out", str(tmp_path / "out"), *options]) in (0, None)
    assert steps.keys() >= TRAININGS and min(steps.values()) >= 4
    for counts in found.values():  # Lightning makes the state of `train/loss` once in an epoch
        for line in [line for line in counts if line.startswith("lift_fresh in training/module.py")]:
            assert counts.pop(line) <= 4
    assert {stage: dict(counts) for stage, counts in found.items() if counts and stage in TRAININGS} == {}
