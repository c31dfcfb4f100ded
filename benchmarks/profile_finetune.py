"""Profile of fine-tuning on named entities: the operations that take most of it, of a side of `finetune_ner.py`.

python benchmarks/profile_finetune.py [--side domainbert] [--data econ] [--model FOLDER] [--steps 40]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from finetune_ner import described, parser_of, settings_of, sides_of
from profiling import WARM_UP, operations
from side_by_side import Turns, write_result

_PACKAGES = ("domainbert", "torch", "lightning", "transformers", "accelerate")


class _Enough(Exception):
    """Ends a training."""


def main() -> None:
    """Train some steps under torch's profiler, print the operations and write the JSON."""
    parser = parser_of("Profile of fine-tuning on entities")
    parser.add_argument("--side", default="domainbert", help="name of a side, as finetune_ner.py prints it")
    parser.add_argument("--steps", type=int, default=40, help="optimiser steps that are looked at")
    options = parser.parse_args()
    sides = {side.name: side for side in sides_of(settings_of(options))}
    if options.side not in sides:
        raise SystemExit(f"--side: found '{options.side}'; expected one of {', '.join(sides)}")
    found = operations(lambda step: _train(sides[options.side], step, WARM_UP + options.steps + 1), options.steps)
    name = options.side.replace(", ", "-").replace(" ", "_")
    out = options.out or Path(__file__).parent / "results" / f"profile_finetune-{options.data}-{name}.json"
    told = described(options) | {"side": options.side, "steps": options.steps}
    write_result(out, found, told, _PACKAGES, {})


def _train(side: Any, step: Callable[[float], None], num_steps: int) -> dict[str, Any]:
    """Train a side for so many steps of its first epoch."""
    done = 0

    class Stops:
        def done(self, amount: float) -> None:
            nonlocal done
            step(amount)
            done += 1
            if done == num_steps:
                raise _Enough

    try:
        side.work(cast(Turns, Stops()), side.settings)
    except _Enough:
        return {"steps": done}
    raise SystemExit(f"--steps: the training has only {done} steps; expected more epochs, or fewer steps")


if __name__ == "__main__":
    main()
