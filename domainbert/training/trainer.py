"""Construction of the Lightning Trainer of a stage, and the logger that writes `metrics.jsonl`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from domainbert.base.errors import DomainbertError
from domainbert.base.files import write_text
from domainbert.base.process import call_glibc, read_number
from domainbert.training.config import LoggerName, Training, check_logger_installed
from domainbert.training.lightning_internals import set_ddp_option, silence_lightning
from domainbert.training.micro_batches import LargestMicroBatch
from domainbert.training.precision import resolve_precision
from domainbert.training.sharding import FullySharded

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h of glibc
_NO_LIMIT = 2**31 - 1


def build_trainer(
    settings: Training,
    out: Path,
    num_steps: int,
    batch_size: int,
    validate_every: int,
    callbacks: Sequence[lightning.Callback],
    num_epochs: int | None = None,
) -> lightning.Trainer:
    """Return the Trainer of a stage with `num_steps` optimiser steps of `batch_size` rows or examples over all devices.

    `out` is the output folder. The Trainer validates every `validate_every` steps; with `num_epochs`, which replaces
    `num_steps`, after each epoch.

    Raises:
        DomainbertError: the batch size is not divisible into micro-batches, or a logger is not installed;
            `micro_batch_size: auto` with `strategy: fsdp`.
    """
    micro_batch_size, given_arguments = settings.micro_batch_size, settings.trainer or {}
    sharded = given_arguments.get("strategy") == "fsdp"
    automatic: list[lightning.Callback] = []  # callbacks that set the micro-batch size
    if micro_batch_size == "auto":
        if sharded:
            raise DomainbertError(
                where="micro_batch_size", found="auto with trainer.strategy: fsdp", expected="a number of rows"
            )
        micro_batch_size = None  # until the callback sets it
        automatic = [LargestMicroBatch(batch_size, validate_every)]
    silence_lightning()
    _keep_freed_memory()
    strategy = {"strategy": FullySharded()} if sharded else {}
    arguments = {**given_arguments, **strategy, **_processes_of_launcher()}
    loggers = [_build_logger(name, out / "logs") for name in settings.loggers]
    try:
        trainer = lightning.Trainer(
            **arguments,
            plugins=[SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else None,
            default_root_dir=out,
            max_steps=num_steps if num_epochs is None else -1,
            max_epochs=-1 if num_epochs is None else num_epochs,
            check_val_every_n_epoch=None if num_epochs is None else 1,
            num_sanity_val_steps=0,
            precision=resolve_precision(settings.precision, given_arguments.get("accelerator")),
            callbacks=[*automatic, *callbacks],
            logger=loggers,
            use_distributed_sampler=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
            enable_autolog_hparams=False,
        )
    except (ValueError, TypeError, MisconfigurationException) as error:
        raise DomainbertError(error, where="trainer") from error
    # Gradients are views of the communication buffers, which saves copies.
    set_ddp_option(trainer.strategy, "gradient_as_bucket_view", True)
    # Lightning counts micro-batches in both attributes; their number depends on the number of devices.
    trainer.accumulate_grad_batches = _accumulation(batch_size, micro_batch_size, trainer.world_size)
    if num_epochs is None:
        trainer.val_check_interval = validate_every * trainer.accumulate_grad_batches
    return trainer


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system. Each training step on a CPU allocates and
    frees the same large tensors. Page faults would take about 15 % of the step."""
    call_glibc("mallopt", _M_MMAP_MAX, 0)
    call_glibc("mallopt", _M_TRIM_THRESHOLD, _NO_LIMIT)


def _processes_of_launcher(environment: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return `devices` and `num_nodes` of torchrun or SLURM, which override the settings of the YAML file."""
    if "LOCAL_WORLD_SIZE" in environment:
        devices = read_number(environment, "LOCAL_WORLD_SIZE", low=1)
        return {"devices": devices, "num_nodes": read_number(environment, "WORLD_SIZE", low=devices) // devices}
    if SLURMEnvironment.detect() and "SLURM_NTASKS_PER_NODE" in environment:
        nodes = read_number(environment, "SLURM_NNODES", "1", low=1)  # of this srun; SLURM_JOB_NUM_NODES is of the job
        return {"devices": read_number(environment, "SLURM_NTASKS_PER_NODE", low=1), "num_nodes": nodes}
    return {}


def _accumulation(batch_size: int, micro_batch_size: int | None, world_size: int) -> int:
    """Return the number of micro-batches of a device per optimiser step; `micro_batch_size` None is one micro-batch."""
    per_device, rest = divmod(batch_size, world_size)
    size = micro_batch_size or per_device
    if rest or not per_device or per_device % size:
        product = f"the number of devices ({world_size})"
        product += f" times micro_batch_size ({micro_batch_size})" if micro_batch_size else ""
        multiple = (micro_batch_size or 1) * world_size
        raise DomainbertError(where="batch_size", found=batch_size, expected=f"a multiple of {multiple}, {product}")
    return per_device // size


def _build_logger(name: LoggerName, folder: Path) -> Logger:
    check_logger_installed(name)
    if name == "jsonl":
        return MetricsFile(folder / "metrics.jsonl")
    if name == "tensorboard":
        return TensorBoardLogger(folder, name="", version="tensorboard")
    if name == "wandb":
        return WandbLogger(save_dir=folder, project="domainbert")
    return MLFlowLogger(experiment_name="domainbert", save_dir=str(folder / "mlruns"))


class MetricsFile(Logger):
    """Logger that appends each set of metrics as a line `{"step": ..., "name": value, ...}`; steps count from 1.

    The first line creates the file and its folder. The last line may be incomplete while a training runs: read only up
    to the last line feed.
    """

    name = "metrics"
    version = ""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @property
    def save_dir(self) -> str:
        """The folder of the file."""
        return str(self.path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: `run.json` contains the settings."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append a line with the metrics of a step. Lightning counts `step` from 0, the file from 1."""
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": (step or 0) + 1, **values}) + "\n")

    @rank_zero_only
    def truncate_after(self, step: int) -> None:
        """Delete the lines after `step`, which a process wrote after its last checkpoint."""
        if not self.path.is_file():
            return
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        write_text(self.path, "".join(line for line in lines if _step_of(line) <= step))


def _step_of(line: str) -> float:
    """Return the step of a line; infinity for a damaged line, so that it is deleted. Damaged is half a line after a
    kill, or a line of zeros after a power failure."""
    try:
        return float(json.loads(line)["step"]) if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf
