"""A Lightning Trainer for domainbert's data: batches come ready, in order, each rank its share."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import lightning
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from domainbert.errors import DomainbertError
from domainbert.training.config import LoggerName, Runtime
from domainbert.training.memory import keep_freed_memory
from domainbert.training.precision import resolve_precision

# What Lightning says of loaders and batches that is not so for ready-made ones.
_DOES_NOT_APPLY = ("does not have many workers", "Trying to infer the `batch_size`", "LeafSpec")


def build_trainer(
    runtime: Runtime,
    num_steps: int,
    batch_size: int,
    validate_every: int,
    callbacks: Sequence[lightning.Callback],
) -> lightning.Trainer:
    """The Trainer of a stage.

    Args:
        runtime: devices, precision, loggers.
        num_steps: optimiser steps.
        batch_size: rows or examples of an optimiser step, over all devices.
        validate_every: optimiser steps between validations.
        callbacks: what watches the training.

    Raises:
        DomainbertError: the global batch does not divide into micro-batches, or a logger is not installed.
    """
    _quieten()
    keep_freed_memory()
    trainer = lightning.Trainer(
        **runtime.trainer,
        default_root_dir=runtime.out,
        max_steps=num_steps,
        max_epochs=-1,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        precision=resolve_precision(runtime.precision),
        callbacks=list(callbacks),
        logger=[_build_logger(name, runtime.out / "logs") for name in runtime.loggers],
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    # Both count micro-batches, whose number depends on how many devices Lightning found.
    trainer.accumulate_grad_batches = _accumulation(batch_size, runtime.micro_batch_size, trainer.world_size)
    trainer.val_check_interval = validate_every * trainer.accumulate_grad_batches
    return trainer


def _accumulation(batch_size: int, micro_batch_size: int | None, world_size: int) -> int:
    per_device, rest = divmod(batch_size, world_size)
    size = micro_batch_size or per_device
    if rest or not per_device or per_device % size:
        raise DomainbertError(
            f"batch_size: {batch_size} does not divide into micro-batches of {size or 1} on {world_size} devices"
        )
    return per_device // size


def _quieten() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for text in _DOES_NOT_APPLY:
        warnings.filterwarnings("ignore", message=f".*{text}.*")


def _build_logger(name: LoggerName, folder: Path) -> Logger:
    builders: dict[LoggerName, Callable[[], Logger]] = {
        "csv": lambda: CSVLogger(folder, name="", version=""),
        "tensorboard": lambda: TensorBoardLogger(folder, name="", version="tensorboard"),
        "wandb": lambda: WandbLogger(save_dir=folder, project="domainbert"),
        "mlflow": lambda: MLFlowLogger(experiment_name="domainbert", save_dir=str(folder / "mlruns")),
    }
    try:
        return builders[name]()
    except ModuleNotFoundError as error:
        raise DomainbertError(f"loggers: {name} is not installed; pip install 'domainbert[{name}]'") from error
