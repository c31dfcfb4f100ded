"""Stages for the tests of the command line: `make` writes words, `use` reads them, `score` compares systems."""

from __future__ import annotations

import json
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, TrainingFailed
from domainbert.base.fields import PARTS, SPEED_ONLY
from domainbert.base.process import raise_if_stopped
from domainbert.stages.stage import stage

CALLS: list[str] = []


class Shape(ABC):
    """An open choice."""

    @abstractmethod
    def area(self) -> float:
        """The area."""


@dataclass(frozen=True)
class Circle(Shape):
    """Round."""

    radius: float = 1.0
    """From the middle to the rim."""

    def __post_init__(self) -> None:
        if self.radius <= 0:
            raise DomainbertError(where="radius", found=self.radius, expected="a positive number")

    def area(self) -> float:
        return 3 * self.radius**2


@dataclass(frozen=True)
class Square(Shape):
    """Not round."""

    side: int
    """Length of a side."""

    def area(self) -> float:
        return float(self.side**2)


@dataclass(frozen=True)
class Optim:
    """An optimiser."""

    lr: float = 1e-3
    """Learning rate."""

    name: Literal["adamw", "muon"] = "adamw"
    """Which one."""


@dataclass(frozen=True)
class Texts:
    """Files named by text."""

    files: list[str]
    """Their names."""

    def input_files(self, without: Collection[str] = ()) -> list[Path]:
        read = [Path(name) for name in self.files if name not in without]
        for path in read:
            if not path.exists():
                raise DomainbertError("no such file", file=path, expected="a text")
        return read


@dataclass(frozen=True, kw_only=True)
class Make:
    """Settings of `make`."""

    words: list[str]
    """Words to write."""

    size: int = 2
    """How often."""

    num_workers: int = field(default=1, metadata=SPEED_ONLY)
    """Changes nothing."""

    texts: Texts | None = None
    """Files that count."""


@stage
def make(out: Path, settings: Make) -> dict[str, Any]:
    """Write words to a file."""
    CALLS.append(out.name)
    words = settings.words * settings.size
    (out / "words.txt").write_text(" ".join(words))
    if "bad" in words:
        raise DomainbertError("words: 'bad' is bad", expected="good words")
    if "crash" in words:
        raise RuntimeError("crash")
    if "stop" in words:
        os.kill(os.getpid(), signal.SIGTERM)
    if "ctrl-c" in words:
        os.kill(os.getpid(), signal.SIGINT)
    return {"count": len(words)}


@dataclass(frozen=True, kw_only=True)
class Use:
    """Settings of `use`."""

    source: Path
    """The file."""

    shape: Shape = Circle(2.0)
    """An open choice."""

    optim: Optim = Optim(name="muon")
    """A group."""

    steps: int = 10
    """A number."""

    seeds: tuple[int, ...] = (1, 2)
    """Several numbers."""

    limit: int | Literal["auto"] = "auto"
    """A number or a word."""

    note: str | None = None
    """A text."""

    trainer: dict[str, Any] | None = None
    """Arguments of lightning.Trainer."""


@stage
def use(out: Path, settings: Use) -> dict[str, Any]:
    """Read what `make` has written."""
    CALLS.append(out.name)
    (out / "arguments.txt").write_text(repr(tuple(vars(settings).values())[1:]))
    source = settings.source
    return {"source": source.read_text() if source.is_file() else "", "area": settings.shape.area()}


@dataclass(frozen=True, kw_only=True)
class Score:
    """Settings of `score`."""

    models: dict[str, Path]
    """Names and folders."""

    seed: int = 3
    """Of the bootstrap."""


@stage
def score(out: Path, settings: Score) -> dict[str, Any]:
    """Compare systems."""
    CALLS.append(out.name)
    names = list(settings.models)
    systems = {name: {"f1": 0.5 - 0.1 * i, "interval": [0.4, 0.6], "seeds": 3} for i, name in enumerate(names)}
    first, *others = names
    paired = [{"a": first, "b": other, "difference": 0.1, "interval": [0.05, 0.15]} for other in others]
    metric = {"key": "f1", "name": "entity F1", "percent": True}
    return {"task": "ner", "metric": metric, "systems": systems, "paired": paired}


@dataclass(frozen=True, kw_only=True)
class Learn:
    """Settings of `learn`."""

    x: float = 0.0
    """The setting that counts."""

    epochs: int = 4
    """Evaluations of each seed."""

    seeds: tuple[int, ...] = field(default=(1,), metadata=PARTS)
    """One training each."""

    optim: Optim = Optim()
    """A group."""

    shape: Shape = Circle(2.0)
    """An open choice."""

    seconds: float = 0.0
    """That an epoch takes."""

    fail_above: float = 1e9
    """An `x` above it ends badly."""

    trouble: Literal["error", "kill", "nan"] = "error"
    """How."""

    loggers: tuple[str, ...] = ("jsonl",)
    """Where metrics go."""


@stage
def learn(out: Path, settings: Learn) -> dict[str, Any]:
    """Get better with every epoch, the more so the nearer `x` is to 0.3; appends `x` to `runs.txt`."""
    x, epochs, fails = settings.x, settings.epochs, settings.x > settings.fail_above
    if fails and settings.trouble == "error":
        raise TrainingFailed(f"the loss is not finite at x = {x}")
    if fails and settings.trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    rows = []
    for seed in settings.seeds:
        for epoch in range(1, epochs + 1):
            time.sleep(settings.seconds)
            raise_if_stopped()
            f1 = float("nan") if fails else (1 - (x - 0.3) ** 2) * epoch / epochs + seed / 1000
            log = out / f"seed-{seed}" / "logs" / "metrics.jsonl"
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "a") as file:
                file.write(json.dumps({"step": epoch, "validation/f1": f1, "validation/loss": 1 - f1}) + "\n")
        rows.append({"seed": seed, "validation": {"step": epochs, "f1": f1, "loss": 1 - f1}})
    (out.parent / "gpu.txt").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    with open(out.parent / "runs.txt", "a") as file:
        file.write(f"{x!r}\n")
    warnings = ["it learned nothing"] if epochs == 1 else []
    score = sum(row["validation"]["f1"] for row in rows) / len(rows)
    return {"validation_f1": score, "seeds": rows, "warnings": warnings}
