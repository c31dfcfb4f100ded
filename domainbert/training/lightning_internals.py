"""Access to undocumented parts of Lightning: private names and loop internals, and the logging that needs them.

Checked with Lightning 2.6.6; check this module first after an upgrade.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import lightning
import torch
from lightning import LightningModule, Trainer
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.overrides.distributed import _IndexBatchSamplerWrapper
from lightning.pytorch.strategies import DDPStrategy, Strategy
from lightning.pytorch.trainer.connectors.data_connector import _parse_num_batches
from lightning.pytorch.trainer.states import RunningStage
from torch import Tensor
from torch.utils.data import BatchSampler

# Parts of warnings of Lightning that do not apply to batches that are already collated and metrics that are exact.
_IRRELEVANT_WARNINGS = (
    "does not have many workers",
    "Trying to infer the `batch_size`",
    "LeafSpec",
    "sync_dist=True",
    "is smaller than the logging interval",
    "overrides the configure_model",
)


def set_ddp_option(strategy: Strategy, name: str, value: Any) -> None:
    """Set the default of a `DistributedDataParallel` argument; ignore other strategies."""
    if isinstance(strategy, DDPStrategy):
        strategy._ddp_kwargs.setdefault(name, value)


def dump_checkpoint(trainer: lightning.Trainer) -> dict[str, Any]:
    """Return the checkpoint that `trainer.save_checkpoint` would write; a collective operation."""
    checkpoint: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
    return checkpoint


def batch_indices(indices: Sequence[list[int]]) -> Any:
    """Return the value of `batch_sampler` from which Lightning's prediction loop reads the indices of each batch."""
    sampler = _IndexBatchSamplerWrapper(BatchSampler(range(0), batch_size=1, drop_last=False))
    sampler.seen_batch_indices = list(indices)
    return sampler


def update_epoch_length(trainer: lightning.Trainer) -> None:
    """Set the number of batches of the epoch that begins: Lightning computes it only once, but a
    `GradientAccumulationScheduler` changes the number of micro-batches. A limit is raised to whole optimizer steps."""
    loop, limit = trainer.fit_loop, trainer.limit_train_batches
    interval = getattr(trainer, "val_check_interval", None)  # missing if validation is timed
    loaders = loop._combined_loader
    if loaders is None or loaders.limits is None:
        return
    accumulation, limits = trainer.accumulate_grad_batches, []
    for loader in loaders.flattened:
        length = sized_len(loader)
        if length is None:
            return
        num_steps = math.ceil(_parse_num_batches(RunningStage.TRAINING, length, limit) / accumulation)
        limits.append(min(num_steps * accumulation, length))
    loaders.limits = [*limits]
    loop.max_batches = num_batches = max(limits)
    if loop._data_fetcher is not None:  # a resumed training has created it before
        loop._data_fetcher.length = num_batches
    if isinstance(interval, float):
        trainer.val_check_batch = max(1, int(num_batches * interval))


def batches_of_epoch(trainer: lightning.Trainer) -> int:
    """Return the number of micro-batches that the current epoch has fetched; after its last batch, all of them."""
    return int(trainer.fit_loop.epoch_loop.batch_progress.current.ready)


def convert_progress(trainer: lightning.Trainer, loops: dict[str, Any], saved: int) -> None:
    """Convert the batch counters of a Lightning checkpoint with `saved` micro-batches per step to those of the Trainer.

    A checkpoint from within an optimizer step resumes at its beginning, because it contains no gradients. Lightning
    itself miscounts epochs and steps when it resumes between two epochs, so these counters are set as well.
    """
    loop, accumulation = loops["fit_loop"], trainer.accumulate_grad_batches
    progress, epochs = loop["epoch_loop.batch_progress"], loop["epoch_progress"]
    current, optimizer_steps = progress["current"], loop["epoch_loop.state_dict"]
    has_next = current["ready"] > current["started"]  # written when the next batch had arrived, which is fetched again
    is_last = progress["is_last_batch"] and not has_next
    progress["is_last_batch"] = is_last
    within_step = 0 if is_last else current["processed"] % saved  # micro-batches of a step that has not ended
    # 1 if the checkpoint was written at the end of a batch, before the batch counts as completed
    uncompleted = 0 if within_step else current["processed"] - current["completed"]
    if has_next and not within_step:  # resume as from the end of the batch before
        uncompleted = 1
        optimizer_steps["_batches_that_stepped"] -= 1
    # False in the validation after the last batch, which Lightning continues correctly
    ends_epoch = uncompleted or epochs["total"]["processed"] == epochs["total"]["started"]
    is_in_first_step = 0 < within_step == current["processed"]  # of the epoch, with which training resumes
    if (is_last and ends_epoch) or is_in_first_step:  # resume between two epochs
        for counts in epochs.values():
            num_epochs = counts["started" if is_last else "processed"]
            counts.update(dict.fromkeys(counts, num_epochs))
        resumes_within = int(trainer.max_steps != -1)  # then Lightning resumes as within an epoch: completes a batch
        optimizer_steps["_batches_that_stepped"] += uncompleted - resumes_within
        progress["is_last_batch"], uncompleted = False, resumes_within
    for counts in (progress["total"], progress["current"]):
        ready = (counts["processed"] - within_step) * accumulation // saved
        counts.update(ready=ready, started=ready, processed=ready, completed=ready - uncompleted)


def convert_loaded_progress(trainer: lightning.Trainer, saved: int) -> None:
    """Convert the counters of the checkpoint that the Trainer is loading, which has `saved` micro-batches per step."""
    if loaded := trainer._checkpoint_connector._loaded_checkpoint:
        convert_progress(trainer, loaded["loops"], saved)


def is_logged_step(trainer: lightning.Trainer) -> bool:
    """Return whether metrics of the current optimizer step are logged; the last step is always logged."""
    step = trainer.fit_loop.epoch_loop._batches_that_stepped + 1
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return step == trainer.estimated_stepping_batches or (every > 0 and step % every == 0)


def validate_now(trainer: lightning.Trainer) -> None:
    """Run the validation loop as Lightning does between two steps, but without loggers, which count from step 1."""
    loggers, trainer.loggers = trainer.loggers, []
    trainer.validating = True
    trainer.fit_loop.epoch_loop.val_loop.run()
    trainer.training = True
    trainer.loggers = loggers


def silence_lightning() -> None:
    """Suppress output and warnings of Lightning that do not apply."""
    for name in ("lightning.pytorch", "lightning.fabric.utilities.distributed"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for text in _IRRELEVANT_WARNINGS:
        warnings.filterwarnings("ignore", message=f".*{text}.*")


def log_step(module: LightningModule, values: Mapping[str, Tensor | float]) -> None:
    """Log values by name if the current optimizer step is the last or one of those that `log_every_n_steps` selects.

    Floats become tensors: Lightning would copy a float from pageable memory, which waits for all queued kernels.
    """
    if is_logged_step(module.trainer):
        for name, value in values.items():
            module.log(name, value if isinstance(value, Tensor) else torch.tensor(value))


def can_read_without_waiting(trainer: Trainer, value: Tensor) -> bool:
    """Return whether reading `value` causes no extra GPU wait: it is on the CPU, or this step waits for logging."""
    return value.device.type == "cpu" or is_logged_step(trainer)
