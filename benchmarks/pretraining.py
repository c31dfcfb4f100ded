"""Pretraining as benchmarks run it: what all sides have in common, and domainbert's own."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from domainbert.encoders.config import EncoderConfig
from domainbert.pretraining.config import ObjectiveConfig
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.objectives.replaced_tokens.config import GeneratorConfig, ReplacedTokens
from domainbert.training.config import OptimConfig

LEARNING_RATE, WARMUP_STEPS, SEED = 5e-4, 5, 0
OBJECTIVES: dict[str, ObjectiveConfig] = {
    "masked_lm": MaskedLM(),
    "replaced_tokens": ReplacedTokens(generator=GeneratorConfig(size=0.25), sharing="es", mask_share=0.85),  # ELECTRA's
}


@dataclass(frozen=True)
class Settings:
    """The work of all sides; `rows` of `length` tokens make an optimiser step, over all devices."""

    prepared: Path
    encoder: str | EncoderConfig
    length: int
    rows: int
    dropout: float
    objective: ObjectiveConfig = MaskedLM()
    optim: OptimConfig = OptimConfig(lr=LEARNING_RATE)

    def config(self) -> EncoderConfig:
        """The architecture, with its dropouts set and positions for the rows; a name is that of a YAML."""
        named = named_encoder(self.encoder) if isinstance(self.encoder, str) else self.encoder
        config = named.with_dropout(self.dropout)
        return config.resized(replace(config.sizes, max_length=max(self.length, config.max_length)))


def named_encoder(name: str) -> EncoderConfig:
    """The architecture that `encoder: NAME` means in a YAML."""
    from domainbert.encoders.families import config_class, family_names

    said = yaml.safe_load((EncoderConfig.files / f"{name}.yaml").read_text(encoding="utf-8"))
    kinds = {kind.__name__: kind for kind in map(config_class, family_names())}
    return kinds[said["class_path"]](**said.get("init_args", {}))


def train(
    settings: Settings,
    num_steps: int,
    after_step: Callable[[float], None],
    out: Path,
    trainer_arguments: Mapping[str, Any] | None = None,
    num_workers: int | None = 0,
    adapt: Callable[[Any], None] = lambda module: None,
) -> dict[str, Any]:
    """Train as the stage `pretrain` by default (on a GPU with `compile: true`), without validation and checkpoints.

    Args:
        settings: model, rows and corpus.
        num_steps: optimiser steps.
        after_step: called after each, with the tokens of all devices; training waits for it.
        out: folder for logs.
        trainer_arguments: as `trainer:` of the stage.
        num_workers: as in the stage.
        adapt: called with the LightningModule before the training.

    Returns:
        Facts for the JSON.
    """
    import lightning
    import torch

    from domainbert.pretraining.data_module import PretrainingData
    from domainbert.pretraining.module import Pretraining
    from domainbert.training.callbacks import History, ProgressLines
    from domainbert.training.config import ScheduleConfig, Training
    from domainbert.training.throughput import throughput_callback
    from domainbert.training.trainer import build_trainer

    class AfterStep(lightning.Callback):
        losses: list[torch.Tensor] = []  # noqa: RUF012

        def on_train_batch_end(
            self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, _: int
        ) -> None:
            self.losses.append(outputs["loss"].detach())
            after_step(batch["num_tokens"])

    lightning.seed_everything(SEED, verbose=False)
    schedule = ScheduleConfig(warmup_steps=WARMUP_STEPS)
    data = PretrainingData(
        settings.prepared,
        settings.objective,
        max_length=settings.length,
        batch_size=settings.rows,
        seed=SEED,
        num_workers=num_workers,
    )
    module = Pretraining(
        settings.config(),
        data.tokenizer,
        settings.objective,
        optim=settings.optim,
        schedule=schedule,
        seed=SEED,
        compile=torch.cuda.is_available(),
    )
    adapt(module)
    arguments = {"limit_val_batches": 0, **(trainer_arguments or {})}
    training = Training(trainer=arguments)
    flops_per_token = module.objective.flops_per_token(module.models, settings.length)
    throughput = throughput_callback({0: flops_per_token}, training)
    callbacks = [
        History(),
        throughput,
        ProgressLines("pretrain", num_steps),
        AfterStep(),
    ]
    trainer = build_trainer(training, out, num_steps, settings.rows, num_steps, callbacks)
    trainer.fit(module, datamodule=data)
    arithmetic = {"flops_per_token": flops_per_token, "peak_flops": throughput.peak_flops}
    return facts_of_training(AfterStep.losses, module, str(trainer.precision)) | arithmetic


def facts_of_training(losses: Sequence[Any], model: Any, how: str) -> dict[str, Any]:
    """Facts for the JSON; a side that does not learn is a failure, however fast."""
    import torch

    values = [float(loss) for loss in losses]
    few = max(1, len(values) // 4)
    first, last = statistics.fmean(values[:few]), statistics.fmean(values[-few:])
    assert all(map(math.isfinite, values)), f"losses are not finite: {values}"
    assert last < first, f"losses do not fall: {values}"
    return {
        "how": how,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "losses": [round(value, 4) for value in values],
    }
