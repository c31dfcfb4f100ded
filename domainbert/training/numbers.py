"""Watches the numbers of a training: steps that were not finite, and sudden rises of the loss."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from domainbert.base.errors import TrainingFailed
from domainbert.training.callbacks import Remembering
from domainbert.training.logged_steps import may_read
from domainbert.training.module import TrainedModule

_IN_A_ROW = 3
_MOST_UNSEEN = 1000  # steps; more only where logging is off
_MEMORY = 100  # steps over which the running mean and deviation of the loss forget
_DEVIATIONS = 6.0  # of a loss above its running mean that make a spike


class NumberWatch(Remembering):
    """Counts skipped steps and loss spikes; three skipped steps in a row end the training.

    A skipped step changes no weight (see `TrainedModule`); the terms of its loss that were not finite are named, or
    that it was the loss or the gradient. A spike is a loss more than six standard deviations above the mean, both
    running averages over about 100 steps whose losses have the same terms; it is reported and changes nothing. On a GPU
    the numbers are read in the next step that is logged. `items_of_step` says what the global batch of a step (from 0)
    consisted of, as plain values, for `non_finite.json` in `out`.
    """

    remembered = ("skipped_steps", "not_finite", "loss_spikes", "averages", "terms")

    def __init__(self, out: Path, items_of_step: Callable[[int], Any]) -> None:
        self.file, self.items_of_step = out / "non_finite.json", items_of_step
        self.skipped_steps: list[int] = []
        self.not_finite: list[list[str]] = []  # what was not, of each skipped step
        self.loss_spikes: list[int] = []
        # of finite losses, by the names of their terms: count, running mean, that of the squares
        self.averages: dict[str, tuple[int, float, float]] = {}
        self.terms: dict[str, float] = {}  # of the loss, the last of each, which are logged
        # the last steps: number, names of the terms; loss, whether skipped, terms
        self._unseen: list[tuple[int, list[str], list[Tensor]]] = []
        self._reports = True

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints; of all steps until now."""
        self._see()
        return super().state_dict()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let a resumed training log what the one before would have."""
        cast(TrainedModule, pl_module).last_parts |= self.terms

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at an optimiser step."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        self._reports = trainer.is_global_zero
        module = cast(TrainedModule, pl_module)
        measured = [module.step_loss, module.step_skipped, *module.step_parts.values()]
        self._unseen.append((trainer.global_step, [*module.step_parts], measured))
        if may_read(trainer, module.step_loss) or len(self._unseen) >= _MOST_UNSEEN:
            self._see()

    def on_train_end(self, *_: Any) -> None:
        """Look at the last steps."""
        self._see()

    def _see(self) -> None:
        if not self._unseen:
            return
        unseen, self._unseen = self._unseen, []
        values = iter(torch.stack([one for *_, measured in unseen for one in measured]).tolist())  # fetched at one time
        for step, names, _ in unseen:
            loss, left_out = next(values), next(values)
            terms = {name: next(values) for name in names}
            self.terms |= terms
            if left_out:
                self._note_skipped(step, _not_finite(loss, terms))
            else:
                self._note_loss(step, loss, ", ".join(names))

    def _note_skipped(self, step: int, names: list[str]) -> None:
        self.skipped_steps.append(step)
        self.not_finite.append(names)
        if self._reports:
            print(f"warning: step {step:,}: not finite: {', '.join(names)}; the step changed no weight", flush=True)
        last = self.skipped_steps[-_IN_A_ROW:]
        if last != list(range(step - _IN_A_ROW + 1, step + 1)):
            return
        found = dict(zip(last, self.not_finite[-_IN_A_ROW:], strict=True))
        if self._reports:
            items = [{"step": one, "not_finite": names, **self.items_of_step(one - 1)} for one, names in found.items()]
            self.file.write_text(json.dumps(items, indent=1) + "\n", encoding="utf-8")
        each = ", ".join(dict.fromkeys(name for names in found.values() for name in names))
        raise TrainingFailed(
            f"steps {last[0]:,} to {last[-1]:,}: loss or gradient was not finite {_IN_A_ROW} times in a row ({each}); "
            f"{self.file} names their texts. A lower optim.lr, more schedule.warmup_steps or 32-true may help"
        )

    def _note_loss(self, step: int, loss: float, terms: str = "") -> None:
        count, mean, square = self.averages.get(terms, (0, 0.0, 0.0))
        deviation = math.sqrt(max(square - mean**2, 0.0))
        if count >= _MEMORY and loss > mean + _DEVIATIONS * deviation:
            self.loss_spikes.append(step)
            usual = f"{mean:.3f} +- {deviation:.3f} before"
            print(f"warning: step {step:,}: the loss jumped to {loss:.3f} ({usual})", flush=True)
        share = 1 / min(count + 1, _MEMORY)
        self.averages[terms] = count + 1, mean + share * (loss - mean), square + share * (loss**2 - square)


def _not_finite(loss: float, terms: Mapping[str, float]) -> list[str]:
    """The terms of a loss that are not finite; else the loss, where it is not, or the gradient."""
    found = [name for name, value in terms.items() if not math.isfinite(value)]
    return found or ["gradient" if math.isfinite(loss) else "loss"]
