"""Stages for the tests of the command line: `make` writes words, `use` reads them, `score` compares systems."""

from __future__ import annotations

import json
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from domainbert.base.errors import DomainbertError, TrainingFailed

SPEED_ONLY = {"num_workers"}
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
            raise DomainbertError(f"radius: found {self.radius}; expected a positive number")

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
                raise DomainbertError(f"{path}: no such file; expected a text")
        return read


def make(
    out: Path, words: list[str], size: int = 2, num_workers: int = 1, texts: Texts | None = None
) -> dict[str, Any]:
    """Write words to a file.

    Args:
        words: what is written.
        size: how often.
        num_workers: changes nothing.
        texts: files that count.
    """
    CALLS.append(out.name)
    (out / "words.txt").write_text(" ".join(words * size))
    if "bad" in words:
        raise DomainbertError("words: 'bad' is bad; expected good words")
    if "crash" in words:
        raise RuntimeError("crash")
    return {"count": len(words) * size}


def use(
    out: Path,
    source: Path,
    shape: Shape = Circle(2.0),
    optim: Optim = Optim(name="muon"),
    steps: int = 10,
    seeds: tuple[int, ...] = (1, 2),
    limit: int | Literal["auto"] = "auto",
    note: str | None = None,
    trainer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Read what `make` has written.

    Args:
        source: the file.
        shape: an open choice.
        optim: a group.
        steps: a number.
        seeds: several numbers.
        limit: a number or a word.
        note: a text.
        trainer: arguments of lightning.Trainer.
    """
    CALLS.append(out.name)
    (out / "arguments.txt").write_text(repr((shape, optim, steps, seeds, limit, note, trainer)))
    return {"source": Path(source).read_text() if source.is_file() else "", "area": shape.area()}


def score(out: Path, models: dict[str, Path], seed: int = 3) -> dict[str, Any]:
    """Compare systems.

    Args:
        models: names and folders.
        seed: of the bootstrap.
    """
    CALLS.append(out.name)
    systems = {name: {"f1": 0.5 - 0.1 * i, "interval": [0.4, 0.6], "seeds": 3} for i, name in enumerate(models)}
    first, *others = models
    paired = [{"a": first, "b": other, "difference": 0.1, "interval": [0.05, 0.15]} for other in others]
    metric = {"key": "f1", "name": "entity F1", "percent": True}
    return {"task": "ner", "metric": metric, "systems": systems, "paired": paired}


def learn(
    out: Path,
    x: float = 0.0,
    epochs: int = 4,
    seeds: tuple[int, ...] = (1,),
    optim: Optim = Optim(),
    shape: Shape = Circle(2.0),
    seconds: float = 0.0,
    fail_above: float = 1e9,
    trouble: Literal["error", "kill", "nan"] = "error",
    loggers: tuple[str, ...] = ("jsonl",),
) -> dict[str, Any]:
    """Get better with every epoch, the more so the nearer `x` is to 0.3; what it does is noted in `learnt.txt`.

    Args:
        x: the setting that counts.
        epochs: evaluations of each seed.
        seeds: one training each.
        optim: a group.
        shape: an open choice.
        seconds: that an epoch takes.
        fail_above: an `x` above it ends badly.
        trouble: how.
        loggers: where metrics go.
    """
    if x > fail_above and trouble == "error":
        raise TrainingFailed(f"the loss is not finite at x = {x}")
    if x > fail_above and trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    rows = []
    for seed in seeds:
        for epoch in range(1, epochs + 1):
            time.sleep(seconds)
            f1 = (1 - (x - 0.3) ** 2) * epoch / epochs + seed / 1000 if x <= fail_above else float("nan")
            log = out / f"seed-{seed}" / "logs" / "metrics.jsonl"
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "a") as file:
                file.write(json.dumps({"step": epoch, "validation/f1": f1, "validation/loss": 1 - f1}) + "\n")
        rows.append({"seed": seed, "validation": {"step": epochs, "f1": f1, "loss": 1 - f1}})
    with open(out.parent / "learnt.txt", "a") as file:
        file.write(f"{x!r}\n")
    return {"validation_f1": sum(row["validation"]["f1"] for row in rows) / len(rows), "seeds": rows}
