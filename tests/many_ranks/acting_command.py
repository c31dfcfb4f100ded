"""`domainbert`, in which one process sends a signal in the middle of a step: no race between a test and a training.

The environment variable ACT says which: `{"rank": 1, "step": 7, "signal": "SIGTERM", "during": "training"}`; step 7 is
the eighth. `to` may be `group`, for all processes of the session's group, or `parent`, and `times` a number of signals.
With `during: start` it is before the first step, while the first process waits for the others. Processes that torchrun
has started again do not act.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from domainbert.base.process import process_rank
from domainbert.cli import main

_HOOKS = {"training": "training_step", "validation": "validation_step"}


def _act(act: dict[str, Any]) -> None:
    number = signal.Signals[act["signal"]]
    for _ in range(act.get("times", 1)):
        if act.get("to") == "group":
            os.killpg(0, number)
        else:
            os.kill(os.getppid() if act.get("to") == "parent" else os.getpid(), number)
        time.sleep(0.2)  # for the signal to arrive


def _prepare_start(act: dict[str, Any]) -> None:
    """Put the signal into the reading of the corpus."""
    from domainbert.pretraining import batches

    original = batches.validation_reader

    def validation_reader(*arguments: Any) -> Any:
        _act(act)
        return original(*arguments)

    batches.validation_reader = validation_reader


def _prepare_step(act: dict[str, Any]) -> None:
    """Put the signal into the module's step."""
    from domainbert.pretraining.module import Pretraining

    hook = _HOOKS[act.get("during", "training")]
    original = getattr(Pretraining, hook)

    def step(module: Any, batch: Any, batch_idx: int) -> Any:
        if module.trainer.global_step == act["step"] and not act.get("done"):
            act["done"] = True
            _act(act)
        return original(module, batch, batch_idx)

    setattr(Pretraining, hook, step)


if __name__ == "__main__":
    wanted = json.loads(os.environ.get("ACT", "{}"))
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if wanted and process_rank() == wanted["rank"] and not again:
        (_prepare_start if wanted.get("during") == "start" else _prepare_step)(wanted)
    sys.exit(main())
