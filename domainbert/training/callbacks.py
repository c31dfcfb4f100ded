"""Training callbacks: progress lines, throughput, validation history, best weights."""

from __future__ import annotations

import math
import time
from bisect import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from domainbert.base.errors import DomainbertError, divergence_error
from domainbert.base.progress import Progress
from domainbert.metrics.headline import LOSS, Headline
from domainbert.training.lightning_internals import can_read_without_waiting, is_logged_step, log_step, validate_now
from domainbert.training.sharding import load_whole_weights, whole_weights

_WARM_UP_STEPS = 5  # compilation and allocation happen in the first steps
_TOKENS_PER_SECOND, _UTILISATION = "throughput/tokens_per_second", "throughput/model_flop_utilisation"
_METRIC_FORMATS = {
    "train/loss": "loss {:.3f}",
    "validation/loss": "validation loss {:.3f}",
    _TOKENS_PER_SECOND: "{:,.0f} tokens/s",
    _UTILISATION: "MFU {:.0%}",
}


class StatefulCallback(Callback):
    """Callback that saves the attributes named in `state_attributes` in checkpoints."""

    state_attributes: tuple[str, ...] = ()

    def state_dict(self) -> dict[str, Any]:
        """Return the attributes in `state_attributes` for a checkpoint."""
        return {name: getattr(self, name) for name in self.state_attributes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a result of `state_dict`. Ignore a state that lacks an attribute: an older version saved it."""
        if state_dict.keys() >= set(self.state_attributes):
            for name in self.state_attributes:
                setattr(self, name, state_dict[name])


class ProgressLines(Callback):
    """Callback that prints progress over `num_steps` optimiser steps: a live line in a terminal, a line every 30 s in a
    log file.

    It includes the phase number if there are several `starts` (first steps of phases), and the `headline` metric.
    """

    def __init__(
        self, label: str, num_steps: int, starts: Sequence[int] = (0,), headline: Headline | None = None
    ) -> None:
        self.label, self.num_steps, self.starts = label, num_steps, starts
        self._formats = dict(_METRIC_FORMATS)
        if headline is not None and headline != LOSS:
            self._formats[headline.monitor] = f"validation {headline.name} {{:.4f}}"
        self._progress: Progress | None = None  # None in all processes but the first
        self._steps, self._description = 0, ""  # counted steps, and the last result of `_describe`

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        """Start the clock."""
        self._steps = trainer.global_step
        if trainer.is_global_zero:
            self._progress = Progress(self.label, self.num_steps, "steps", start=self._steps)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Count an optimiser step if one has ended, and print a line if it is time for one."""
        step = trainer.global_step
        if self._progress is None or step == self._steps:
            return
        if is_logged_step(trainer):  # read the metrics now: when the next line is due, it would wait for a GPU
            self._describe(trainer, pl_module)
        self._progress.advance(step - self._steps, lambda: self._describe(trainer, pl_module))
        self._steps = step

    def on_train_end(self, *_: Any) -> None:
        """Print the closing line."""
        if self._progress is not None:
            self._progress.close()

    def on_exception(self, *_: Any) -> None:
        """Remove the live line."""
        if self._progress is not None:
            self._progress.abandon()

    def _describe(self, trainer: Trainer, module: Any) -> str:
        """Return phase and metrics: of this step if no GPU has to be waited for, else of the last call."""
        if can_read_without_waiting(trainer, module.step_loss.total):
            metrics = {**trainer.callback_metrics, "train/loss": module.step_loss.total}
            phase = bisect(self.starts, trainer.global_step - 1)  # number, from 1, of the phase of the last step
            parts = [f"phase {phase} of {len(self.starts)}"] if len(self.starts) > 1 else []
            parts += [form.format(float(metrics[name])) for name, form in self._formats.items() if name in metrics]
            self._description = ", ".join(parts)
        return self._description


class Throughput(StatefulCallback):
    """Callback that measures tokens per second (without padding and special tokens) of the training, without
    validation.

    `flops_per_token` maps the first step (from 0) of each phase to its `throughput.flops_per_token`; `peak_flops` are
    the floating-point operations per second of one device.
    """

    state_attributes = ("tokens", "seconds", "flops")

    def __init__(self, flops_per_token: Mapping[int, float], peak_flops: float) -> None:
        self.flops_per_token, self.peak_flops = flops_per_token, peak_flops
        self.tokens, self.seconds, self.flops = 0, 0.0, 0.0
        self.num_devices = 1
        self._steps_in_phase, self._last_step_end = 0, 0.0

    @property
    def tokens_per_second(self) -> float:
        """Mean tokens per second, without the first steps of each phase, which compile; 0 before any step is
        measured."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def model_flop_utilisation(self) -> float:
        """Model FLOPs per second divided by the peak of all devices, from 0 to 1."""
        return self.flops / self.seconds / (self.peak_flops * self.num_devices) if self.seconds else 0.0

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        """Start the clock."""
        self.num_devices = trainer.world_size
        self._last_step_end = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add tokens, time and FLOPs of an optimiser step, and log the rates; the first steps of each phase do not
        count."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:  # more micro-batches of this step follow
            return
        now, step = time.perf_counter(), int(batch["step"])
        begins_phase = step in self.flops_per_token
        self._steps_in_phase = 1 if begins_phase else self._steps_in_phase + 1
        if self._steps_in_phase > _WARM_UP_STEPS:
            tokens = int(batch["num_tokens"])  # of the global batch, not only of this micro-batch
            self.tokens += tokens
            self.seconds += now - self._last_step_end
            phase_start = max(start for start in self.flops_per_token if start <= step)
            self.flops += tokens * self.flops_per_token[phase_start]
            rates = {_TOKENS_PER_SECOND: self.tokens_per_second, _UTILISATION: self.model_flop_utilisation}
            log_step(pl_module, rates)
        self._last_step_end = now

    def on_validation_end(self, *_: Any) -> None:
        """Restart the clock: validation is not training time."""
        self._last_step_end = time.perf_counter()


class ValidateFirst(Callback):
    """Callback that validates the initial model before the first step, when signals are handled already."""

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        """Validate without logging: loggers count steps from 1."""
        if trainer.global_step == 0:
            validate_now(trainer)


class History(StatefulCallback):
    """Callback that records the metrics of each validation in `rows`; the last step is always validated."""

    state_attributes = ("rows",)

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []  # `step` and the metrics, without "validation/"

    @property
    def last(self) -> dict[str, float]:
        """Metrics of the last validation. Raises `TrainingFailed` if its loss is not finite."""
        row = self.rows[-1]
        if not math.isfinite(row.get("loss", 0.0)):
            raise divergence_error(f"the validation loss after step {row['step']:,} is {row['loss']}")
        return row

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Request a stop at the last step: Lightning validates on a requested stop, but not at `max_steps`."""
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        """Record the metrics of this validation."""
        metrics = trainer.callback_metrics.items()
        values = {name.removeprefix("validation/"): float(v) for name, v in metrics if name.startswith("validation/")}
        self.rows.append({"step": trainer.global_step, **values})


class KeepBest(StatefulCallback):
    """Callback that keeps the weights of the best validation in memory; of equal validations the first.

    Args:
        headline: metric to compare.
        patience: validations without improvement before training stops; None disables early stopping.
    """

    state_attributes = ("best", "best_step", "since_best", "weights")

    def __init__(self, headline: Headline, patience: int | None) -> None:
        self.headline, self.monitor, self.patience = headline, headline.monitor, patience
        self.best = headline.worst
        self.best_step = self.since_best = 0
        self.weights: dict[str, Tensor] = {}

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Copy the weights if the metric improved; otherwise stop the training if the patience is used up.

        Raises `DomainbertError` if the metric is missing.
        """
        if self.monitor not in trainer.callback_metrics:
            names = ", ".join(name for name in trainer.callback_metrics if name.startswith("validation/"))
            raise DomainbertError(
                "not logged by the validation", where=self.monitor, expected=f"one of {names or '(none)'}"
            )
        value = float(trainer.callback_metrics[self.monitor])
        if self.headline.is_better(value, self.best):
            self.best, self.best_step, self.since_best = value, trainer.global_step, 0
            self.weights = whole_weights(pl_module)
            return
        self.since_best += 1
        if self.patience is not None and self.since_best >= self.patience:
            trainer.should_stop = True

    def restore(self, module: torch.nn.Module) -> None:
        """Load the best weights into `module`. Raises `TrainingFailed` if the metric was never finite."""
        if not math.isfinite(self.best):
            raise divergence_error(f"{self.monitor} was NaN or infinite in all validations")
        load_whole_weights(module, self.weights)
