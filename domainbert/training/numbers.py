"""Watches the numbers of a training: steps that were not finite, and sudden rises of the loss."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from domainbert.base.errors import TrainingFailed
from domainbert.training.callbacks import Remembering

_IN_A_ROW = 3
_STEPS_AT_ONCE = 20  # a GPU has to be waited for to see its numbers; a CPU's are there
_MEMORY = 100  # steps over which the running mean and deviation of the loss forget
_DEVIATIONS = 6.0  # of a loss above its running mean that make a spike


class NumberWatch(Remembering):
    """Counts skipped steps and loss spikes; three skipped steps in a row end the training.

    A skipped step changes no weight (see `TrainedModule`). A spike is a loss more than six standard deviations above
    the mean, both running averages over about 100 steps; it is reported and changes nothing. On a GPU all this is seen
    up to 20 steps later. `items_of_step` says what the global batch of a step (from 0) consisted of, as plain values,
    for `non_finite.json` in `out`.
    """

    remembered = ("skipped_steps", "loss_spikes", "steps", "mean", "square")

    def __init__(self, out: Path, items_of_step: Callable[[int], Any]) -> None:
        self.file, self.items_of_step = out / "non_finite.json", items_of_step
        self.skipped_steps: list[int] = []
        self.loss_spikes: list[int] = []
        self.steps, self.mean, self.square = 0, 0.0, 0.0  # of finite losses: count, running mean, that of the squares
        self._unseen: list[tuple[int, Tensor, Tensor]] = []  # number, loss, and whether skipped, of the last steps
        self._reports = True

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints; of all steps until now."""
        self._see()
        return super().state_dict()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at an optimiser step."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        self._reports = trainer.is_global_zero
        loss, skipped = cast(Tensor, pl_module.step_loss), cast(Tensor, pl_module.step_skipped)
        self._unseen.append((trainer.global_step, loss, skipped))
        if _at_hand(loss) or len(self._unseen) >= _STEPS_AT_ONCE:
            self._see()

    def on_train_end(self, *_: Any) -> None:
        """Look at the last steps."""
        self._see()

    def _see(self) -> None:
        if not self._unseen:
            return
        steps, losses, skipped = zip(*self._unseen, strict=True)
        self._unseen.clear()
        values = torch.stack([*losses, *skipped]).tolist()  # fetched at one time
        for step, loss, left_out in zip(steps, values, values[len(steps) :], strict=False):
            if left_out:
                self._note_skipped(step)
            else:
                self._note_loss(step, loss)

    def _note_skipped(self, step: int) -> None:
        self.skipped_steps.append(step)
        if self._reports:
            print(f"warning: step {step:,}: loss or gradient is not finite; the step changed no weight", flush=True)
        last = self.skipped_steps[-_IN_A_ROW:]
        if last != list(range(step - _IN_A_ROW + 1, step + 1)):
            return
        if self._reports:
            items = [{"step": number, **self.items_of_step(number - 1)} for number in last]
            self.file.write_text(json.dumps(items, indent=1) + "\n", encoding="utf-8")
        raise TrainingFailed(
            f"steps {last[0]:,} to {last[-1]:,}: loss or gradient was not finite {_IN_A_ROW} times in a row; "
            f"{self.file} names their texts. A lower optim.lr, more schedule.warmup_steps or 32-true may help"
        )

    def _note_loss(self, step: int, loss: float) -> None:
        deviation = math.sqrt(max(self.square - self.mean**2, 0.0))
        if self.steps >= _MEMORY and loss > self.mean + _DEVIATIONS * deviation:
            self.loss_spikes.append(step)
            usual = f"{self.mean:.3f} +- {deviation:.3f} before"
            print(f"warning: step {step:,}: the loss jumped to {loss:.3f} ({usual})", flush=True)
        self.steps += 1
        share = 1 / min(self.steps, _MEMORY)
        self.mean += share * (loss - self.mean)
        self.square += share * (loss**2 - self.square)


def _at_hand(value: Tensor) -> bool:
    return value.device.type == "cpu"
