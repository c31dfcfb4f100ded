"""Training of a stage: Trainer, callbacks, length, and the reported result."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning

from domainbert.base.process import process_rank
from domainbert.training.callbacks import History, KeepBest, ProgressLines, ValidateFirst
from domainbert.training.checkpoint_files import FOLDER, newest_checkpoint
from domainbert.training.checkpoints import Checkpoints
from domainbert.training.config import Training
from domainbert.training.data_module import TrainingData, share_of
from domainbert.training.loaders import reraise_worker_error
from domainbert.training.module import TrainedModule
from domainbert.training.number_watch import NumberWatch
from domainbert.training.processes import join_torchrun
from domainbert.training.steps import Steps
from domainbert.training.trainer import build_trainer


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training."""

    validation: dict[str, float]  # metrics of the kept model, and its `step`
    history: list[dict[str, float]]  # metrics of each validation
    skipped_steps: list[int]  # steps that changed no weight, because loss or gradient were not finite
    loss_spikes: list[int]  # steps with a sudden rise of the loss
    micro_batch_size: int  # rows or examples that a device computed at once

    @property
    def facts(self) -> dict[str, Any]:
        """All fields but `micro_batch_size`, which depends on the device: every training reports them in `metrics`."""
        return {name: value for name, value in vars(self).items() if name != "micro_batch_size"}


def fit(
    label: str,
    module: TrainedModule,
    data: TrainingData,
    steps: Steps,
    settings: Training,
    out: Path,
    best: KeepBest | None = None,
    monitor: str | None = None,
    watch: Sequence[lightning.Callback] = (),
) -> TrainingResult:
    """Train a module, from its newest checkpoint if there is one, and return the result; the module then has the
    weights to keep.

    Args:
        label: prefix of progress lines.
        module, data, steps: model, batches and length of the training; module and data are resolved.
        settings: precision, devices, loggers and checkpoints.
        out: output folder.
        best: early stopping and selection of the best validation; None keeps the last weights.
        monitor: validation metric, lower is better, whose best checkpoint is kept; None keeps only the newest.
        watch: further callbacks.

    Raises:
        TrainingFailed: the last validation loss is not finite, or loss or gradient were not in three steps in a row.
        TrainingStopped: a signal ended the training; the state is saved.
    """
    history, numbers = History(), NumberWatch(out, data.describe)
    progress = ProgressLines(label, steps.total, steps.starts, None if best is None else best.headline)
    checkpoints = Checkpoints(out, settings.checkpoint_every, monitor)
    callbacks = [history, *([] if best is None else [best]), *watch, numbers, progress, checkpoints]
    callbacks += [ValidateFirst()] if steps.validate_first else []
    batch_size = steps.phases[-1].batch_size  # of the last phase: earlier phases have more, shorter rows
    trainer = build_trainer(settings, out, steps.total, batch_size, steps.validate_every, callbacks, steps.num_epochs)
    newest = newest_checkpoint(out / FOLDER, print, deletes=process_rank() == 0)
    print(f"{label}: {_parameter_counts(module)}; {steps}; precision {trainer.precision}")
    if newest is not None:
        print(f"resuming from step {newest.step:,} ({newest.path})", flush=True)
    # train
    join_torchrun("nccl" if trainer.strategy.root_device.type == "cuda" else "gloo")
    try:
        with reraise_worker_error():
            trainer.fit(module, datamodule=data, ckpt_path=newest.file if newest else None, weights_only=True)
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        # after Ctrl-C, Lightning ignores further ones and exits with 1: undo both
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise error.__context__ from None
    # metrics of the weights to keep
    kept_metrics = history.last
    if best is not None:
        best.restore(module)
        kept_metrics = next(row for row in history.rows if row["step"] == best.best_step)
    rows_at_once = share_of(trainer).micro_batch_size(batch_size)
    return TrainingResult(kept_metrics, history.rows, numbers.skipped_steps, numbers.loss_spikes, rows_at_once)


def _parameter_counts(module: TrainedModule) -> str:
    """Return the numbers of parameters of each model of a module, and of those that are excluded from training."""
    counts = {name: sum(weight.numel() for weight in model.parameters()) for name, model in module.models.items()}
    excluded = f" ({module.num_excluded:,} more, of vocabulary entries that the texts do not contain, stay unchanged)"
    others = "".join(f" and {count:,} of its {name}" for name, count in counts.items() if name != "model")
    return f"{counts['model']:,} parameters{excluded if module.num_excluded else ''}{others}"
