"""Base class of the LightningModules: optimizer, schedule, clipping, and loss scaling of micro-batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer

from domainbert.base.choices import as_plain
from domainbert.base.errors import DomainbertError
from domainbert.encoders.dropout import StepRandom
from domainbert.encoders.heads import EncoderWithHead
from domainbert.metrics.headline import Headline
from domainbert.models.hub import push_to_hub
from domainbert.training.config import OptimConfig, Precision, ScheduleConfig
from domainbert.training.hparams import read_argument
from domainbert.training.lightning_internals import convert_progress, log_step, update_epoch_length
from domainbert.training.loaders import Batches
from domainbert.training.optimisers import build_optimizer, build_schedule, clip_gradient, skip_step
from domainbert.training.processes import first_process_writes
from domainbert.training.sharding import is_sharded, shard_models
from domainbert.training.step_loss import StepLoss

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer

_ACCUMULATION_KEY = "accumulate_grad_batches"  # checkpoint key of the micro-batches per optimizer step
_FINGERPRINT_KEY = "tokenizer_fingerprint"  # checkpoint key
_PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


class TrainedModule(lightning.LightningModule):
    """Base class of one or more models with an optimizer and a schedule; the constructors of subclasses build the
    models, and subclasses define the steps. The length of the schedule is `trainer.estimated_stepping_batches`.

    Args:
        optim, schedule: see `OptimConfig`, `ScheduleConfig`.
        seed: random seed of new weights and dropout.

    Attributes:
        model: encoder with its head.
        others: further models trained at the same time, by name; they may share parameters with `model`.
        step_loss: loss of the last optimizer step.
        step_random: random numbers of the current micro-batch.
        num_excluded: number of unused parameters that the training excludes.
    """

    model: EncoderWithHead
    others: nn.ModuleDict
    tokenizer: DomainTokenizer
    num_excluded: int = 0

    def __init__(self, optim: OptimConfig, schedule: ScheduleConfig, seed: int) -> None:
        super().__init__()
        self.optim: OptimConfig = read_argument("optim", OptimConfig, optim)
        self.schedule: ScheduleConfig = read_argument("schedule", ScheduleConfig, schedule)
        self.seed = seed
        self.step_loss = StepLoss()
        self.step_random = StepRandom()
        self._all_parameters: list[nn.Parameter] = []  # cached: listing them takes a millisecond

    def _record_arguments(self, **arguments: Any) -> None:
        # plain values, so that checkpoints load without pickle
        self.save_hyperparameters(as_plain(arguments))

    def setup(self, stage: str) -> None:
        """Check the arguments of the Trainer; raise `DomainbertError` if one is not supported."""
        self._all_parameters = []
        if self.trainer.precision not in _PRECISIONS:
            expected = ", ".join(_PRECISIONS)
            raise DomainbertError(
                where="trainer.precision", found=self.trainer.precision, expected=f"one of {expected}"
            )
        strategy = self.trainer.strategy
        if not isinstance(strategy, (SingleDeviceStrategy, DDPStrategy, ModelParallelStrategy)):
            found = type(strategy).__name__
            raise DomainbertError(where="trainer.strategy", found=found, expected="auto, ddp or fsdp (FullySharded())")

    @property
    def precision(self) -> Precision:
        """Precision of the Trainer; 32-true without a Trainer."""
        return "32-true" if self._trainer is None else cast(Precision, self.trainer.precision)

    @property
    def lr(self) -> float:
        """Peak learning rate, `optim.lr`; Lightning's learning-rate finder sets it."""
        return self.optim.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.optim = replace(self.optim, lr=value)
        if "optim" in self.hparams:
            self.hparams["optim"] = as_plain(self.optim)

    @property
    def models(self) -> dict[str, EncoderWithHead]:
        """All models by name; the main one is `model`."""
        return {"model": self.model, **{name: cast(EncoderWithHead, other) for name, other in self.others.items()}}

    def configure_model(self) -> None:
        """Shard each layer's weights over the processes if the strategy is `fsdp`."""
        # no Trainer: load_from_checkpoint; sharded: by an earlier fit, before a test
        if self._trainer is None or is_sharded(self):
            return
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            shard_models([*self.models.values()], self.device_mesh["data_parallel"])  # type: ignore[index]

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return the optimizer and its schedule, which covers all steps of the Trainer and advances at each step."""
        # With 16-mixed a fused optimiser unscales the gradient inside its step: too late for clipping.
        fused = self.trainer.precision != "16-mixed"
        models = list(self.models.values())
        model_parameters = {parameter for model in models for parameter in model.parameters()}
        # of parts of the module that are not models
        extra = [parameter for parameter in self.parameters() if parameter not in model_parameters]
        optimizer = build_optimizer(models, self.optim, fused, extra)
        schedule = build_schedule(optimizer, self.schedule, schedule_steps(self.trainer, self.schedule))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the number of micro-batches per optimizer step, in which Lightning counts, and the tokenizer's hash."""
        checkpoint[_ACCUMULATION_KEY] = self.trainer.accumulate_grad_batches
        checkpoint[_FINGERPRINT_KEY] = self.tokenizer.fingerprint

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Resume at the same optimizer step with any number of micro-batches per step. Raise `DomainbertError` if the
        checkpoint has another tokenizer than the built models."""
        if checkpoint.get(_FINGERPRINT_KEY) not in (None, self.tokenizer.fingerprint):
            raise DomainbertError(
                "the tokenizer of the module has changed since the checkpoint was written", where="ckpt_path"
            )
        if self._trainer is not None and "loops" in checkpoint:
            saved = checkpoint.get(_ACCUMULATION_KEY, self.trainer.accumulate_grad_batches)
            convert_progress(self.trainer, checkpoint["loops"], saved)

    def on_train_start(self) -> None:
        """Raise `DomainbertError` for the training batches of a data module that the Trainer does not know: each epoch
        and each process would read the same batches."""
        loader = self.trainer.train_dataloader
        if isinstance(loader, Batches) and loader.trainer is not self.trainer:
            raise DomainbertError(
                where="trainer.fit",
                found="the loader of a data module without the data module",
                expected="trainer.fit(module, datamodule=data)",
            )

    def on_train_epoch_start(self) -> None:
        """Adapt the length of the epoch to the micro-batches of its steps."""
        update_epoch_length(self.trainer)

    def configure_callbacks(self) -> list[lightning.Callback]:
        """Return an `EndStep`, unless the Trainer has one."""
        callbacks: list[lightning.Callback] = self.trainer.callbacks  # type: ignore[attr-defined]
        has_one = any(isinstance(callback, EndStep) for callback in callbacks)  # of an earlier call of the Trainer
        return [] if has_one else [EndStep()]

    def on_train_batch_start(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Seed the random numbers of a step, until `on_train_batch_end`, with a function of seed, step, micro-batch and
        process. Resuming therefore needs no generator state, and the global generators continue as if unused."""
        micro_batch = batch_idx % self.trainer.accumulate_grad_batches
        numbers = [self.trainer.global_step, micro_batch, self.trainer.global_rank, self.seed]
        self.step_random.begin(numbers, self.device)

    def on_train_batch_end(self, outputs: Any, batch: dict[str, Any], batch_idx: int) -> None:
        """Restore the random numbers from before the step."""
        self.step_random.end(self.device)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradient to the norm `gradient_clip_val` of the Trainer, else `optim.max_grad_norm`; 0 disables
        clipping. Lightning's own clipping does not support fused optimisers.

        If the loss or gradient of any process is not finite, the step changes no weight: fused AdamW on a GPU gets
        `found_inf`; for other optimisers all gradients are removed. The schedule and the data advance.

        Raises:
            DomainbertError: the Trainer has `gradient_clip_algorithm="value"`.
        """
        algorithm = getattr(gradient_clip_algorithm, "value", gradient_clip_algorithm)  # Lightning passes an enum
        if gradient_clip_val is not None and algorithm not in (None, "norm"):
            raise DomainbertError(where="trainer.gradient_clip_algorithm", found=repr(algorithm), expected="'norm'")
        self._all_parameters = self._all_parameters or [*self.parameters()]
        max_norm = self.optim.max_grad_norm if gradient_clip_val is None else gradient_clip_val
        norm = clip_gradient(optimizer, self._all_parameters, max_norm)
        self.step_loss.reduce(self.trainer.strategy)
        total = self.step_loss.total
        # a progress bar reads the loss in each step, which waits for a GPU
        self.log("train/loss", total, prog_bar=self.trainer.progress_bar_callback is not None)
        # skip the step if a value is not finite; with 16-mixed, gradients also overflow while the GradScaler searches
        # its scale, and the GradScaler skips these steps itself
        checked = total if self.trainer.precision == "16-mixed" else norm + total
        self.step_loss.skipped = skipped = ~torch.isfinite(checked)
        skip_step(optimizer, skipped)
        values = {**self.step_loss.last_terms, "grad_norm": norm, "lr": optimizer.param_groups[0]["lr"]}
        log_step(self, {f"train/{name}": value for name, value in values.items()})

    def on_before_backward(self, loss: Tensor) -> None:
        """Record the share of a micro-batch in the mean over ranks and micro-batches, for any loss."""
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)  # with 16-mixed, `loss` is scaled already
        share = loss.detach() / self.trainer.world_size
        self.step_loss.add(share if scaler is None else share / scaler.get_scale())

    def on_validation_epoch_start(self) -> None:
        """Reset the scores of this package, outside of inference mode, so that the next stage can update them."""
        with torch.inference_mode(False):
            self.reset_scores()

    def on_test_epoch_start(self) -> None:
        """Reset the scores of this package."""
        self.on_validation_epoch_start()

    def reset_scores(self) -> None:
        """Reset the scores that validation and test compute; metrics of a user's subclass are not among them."""

    def record_loss(self, loss: Tensor, terms: Mapping[str, Tensor] = MappingProxyType({})) -> Tensor:
        """Record the terms of the loss of a micro-batch by name, for logging; return the loss scaled to undo the
        averaging over ranks (by DDP) and micro-batches (by Lightning).

        `loss` is a sum over a micro-batch, divided by a count over the *global* batch. Its sum over ranks and
        micro-batches is the exact mean, even if the counted tokens are distributed unevenly. Another loss that
        `training_step` returns, without this method, has Lightning's meaning: a mean over its micro-batch.
        """
        if terms:
            self.step_loss.add_terms(terms)
        return loss * (self.trainer.world_size * self.trainer.accumulate_grad_batches)

    def save_pretrained(self, folder: str | Path, card: Any = None) -> None:
        """Write the model folder; every process must call it."""
        raise NotImplementedError

    def push_to_hub(self, repo_id: str, card: Any = None, **arguments: Any) -> str | None:
        """Upload the folder that `save_pretrained(folder, card)` writes to the Hugging Face hub; call it in every
        process. Return the address in the first process, which uploads; see `domainbert.push_to_hub`."""
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, card)
            with first_process_writes() as writes:
                return push_to_hub(repo_id, folder, **arguments) if writes else None


class EndStep(lightning.Callback):
    """Callback that restores the global generators, and discards the losses, if an exception ends a training step."""

    def on_exception(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: object) -> None:
        """Restore the generators, and discard the losses since the last step."""
        if isinstance(pl_module, TrainedModule):  # the Trainer may fit a module of another kind later
            pl_module.step_random.end(pl_module.device)
            pl_module.step_loss.discard()


def schedule_steps(trainer: lightning.Trainer, schedule: ScheduleConfig) -> int:
    """Return the number of optimizer steps of a schedule. Raise `DomainbertError` if the Trainer has no limit."""
    steps = trainer.estimated_stepping_batches
    if not math.isfinite(steps):
        raise DomainbertError(
            where="trainer.max_epochs",
            found="-1 and no max_steps",
            expected="max_epochs or max_steps, because the learning rate depends on the number of steps",
        )
    # fast_dev_run may be shorter than the warm-up; limit_train_batches=0 or max_steps=0 trains nothing
    if getattr(trainer, "fast_dev_run", False) or steps < 1:
        steps = max(steps, (schedule.warmup_steps or 0) + 1)
    return int(steps)


def log_scores(module: lightning.LightningModule, stage: str, scores: Mapping[str, Any], main: Headline | None) -> None:
    """Log scores that are equal in all processes as `stage`/NAME, the score `main` also in the progress bar."""
    main_key = None if main is None else main.key
    for name, score in scores.items():
        # the maximum of equal values is exact; without `sync_dist`, Lightning would print a warning
        module.log(f"{stage}/{name}", score, prog_bar=name == main_key, sync_dist=True, reduce_fx="max")
