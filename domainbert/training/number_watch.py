"""Detection of non-finite steps and loss spikes during training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from domainbert.base.errors import TrainingFailed
from domainbert.base.files import write_json
from domainbert.training.callbacks import StatefulCallback
from domainbert.training.lightning_internals import can_read_without_waiting
from domainbert.training.module import TrainedModule

_FATAL_SKIPS = 3  # skipped steps in a row that end the training
_MAX_UNREAD = 1000  # steps; the limit matters only if logging is off
_AVERAGED_STEPS = 100  # steps of the running mean and deviation of the loss
_DEVIATIONS = 6.0  # standard deviations above the running mean that make a spike


class NumberWatch(StatefulCallback):
    """Callback that records skipped steps and loss spikes; three skipped steps in a row end the training.

    A skipped step changes no weight (see `TrainedModule`); its warning names the non-finite loss terms, or the loss or
    gradient. A spike is a loss more than six standard deviations above the mean, both running averages over about 100
    steps with the same loss terms; it is only reported. On a GPU the values are read at the next logged step.
    `items_of_step` returns the items in the global batch of a step (from 0) as plain values, for `non_finite.json`.
    """

    state_attributes = ("skipped_steps", "not_finite", "loss_spikes", "averages", "terms")

    def __init__(self, out: Path, items_of_step: Callable[[int], Any]) -> None:
        self.file, self.items_of_step = out / "non_finite.json", items_of_step
        self.skipped_steps: list[int] = []
        self.not_finite: list[list[str]] = []  # for each skipped step: names of the non-finite values
        self.loss_spikes: list[int] = []
        # by names of the loss terms, finite losses only: count, running mean, running mean of squares
        self.averages: dict[str, tuple[int, float, float]] = {}
        self.terms: dict[str, float] = {}  # most recent value of each loss term, for logging
        # unread steps: number, names of the terms, [loss, whether skipped, *terms]
        self._unread: list[tuple[int, list[str], list[Tensor]]] = []
        self._prints_warnings = True

    def state_dict(self) -> dict[str, Any]:
        """Return the state for checkpoints, with the values of all steps until now."""
        self._read_steps()
        return super().state_dict()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the loss terms of a checkpoint to the module, so that a resumed training logs the same values."""
        cast(TrainedModule, pl_module).step_loss.last_terms |= self.terms

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record an optimiser step; read its values if that causes no extra GPU wait."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:  # more micro-batches of this step follow
            return
        self._prints_warnings = trainer.is_global_zero
        loss = cast(TrainedModule, pl_module).step_loss
        measured = [loss.total, loss.skipped, *loss.terms.values()]
        self._unread.append((trainer.global_step, [*loss.terms], measured))
        if can_read_without_waiting(trainer, loss.total) or len(self._unread) >= _MAX_UNREAD:
            self._read_steps()

    def on_train_end(self, *_: Any) -> None:
        """Read the values of the last steps."""
        self._read_steps()

    def _read_steps(self) -> None:
        if not self._unread:
            return
        unread, self._unread = self._unread, []
        values = iter(torch.stack([value for *_, measured in unread for value in measured]).tolist())  # one transfer
        for step, names, _ in unread:
            loss, skipped = next(values), next(values)
            terms = {name: next(values) for name in names}
            self.terms |= terms
            if skipped:
                self._record_skipped(step, _non_finite_names(loss, terms))
            else:
                self._record_loss(step, loss, ", ".join(names))

    def _record_skipped(self, step: int, names: list[str]) -> None:
        """Record a skipped step. If it is the third in a row, write the items of the three steps to `non_finite.json`,
        and raise `TrainingFailed`."""
        self.skipped_steps.append(step)
        self.not_finite.append(names)
        if self._prints_warnings:
            print(f"warning: step {step:,} is skipped: NaN or infinite values in {', '.join(names)}", flush=True)
        last = self.skipped_steps[-_FATAL_SKIPS:]
        are_in_a_row = last == list(range(step - _FATAL_SKIPS + 1, step + 1))
        if not are_in_a_row:
            return
        skipped = dict(zip(last, self.not_finite[-_FATAL_SKIPS:], strict=True))
        if self._prints_warnings:
            entries = [
                {"step": number, "not_finite": names_of_step, **self.items_of_step(number - 1)}
                for number, names_of_step in skipped.items()
            ]
            write_json(self.file, entries)
        distinct = ", ".join(dict.fromkeys(name for names_of_step in skipped.values() for name in names_of_step))
        raise TrainingFailed(
            f"steps {last[0]:,} to {last[-1]:,}: loss or gradient was not finite {_FATAL_SKIPS} "
            f"times in a row ({distinct})",
            hint=f"{self.file} lists the texts of these steps; try a lower optim.lr, more "
            "schedule.warmup_steps or precision: 32-true",
        )

    def _record_loss(self, step: int, loss: float, terms: str = "") -> None:
        """Record the step if its loss is a spike, and update the `averages` of steps with the same `terms`."""
        count, mean, mean_square = self.averages.get(terms, (0, 0.0, 0.0))
        deviation = math.sqrt(max(mean_square - mean**2, 0.0))
        if count >= _AVERAGED_STEPS and loss > mean + _DEVIATIONS * deviation:
            self.loss_spikes.append(step)
            if self._prints_warnings:
                before = f"{mean:.3f} +- {deviation:.3f} before"
                print(f"warning: step {step:,}: the loss jumped to {loss:.3f} ({before})", flush=True)
        coefficient = 1 / min(count + 1, _AVERAGED_STEPS)
        mean += coefficient * (loss - mean)
        mean_square += coefficient * (loss**2 - mean_square)
        self.averages[terms] = count + 1, mean, mean_square


def _non_finite_names(loss: float, terms: Mapping[str, float]) -> list[str]:
    names = [name for name, value in terms.items() if not math.isfinite(value)]
    return names or ["gradient" if math.isfinite(loss) else "loss"]
