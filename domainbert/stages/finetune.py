"""`finetune`: a labelled task, from a model folder or from random weights, with several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import BatchSize, Epochs, Length, PositiveInt, Seeds, Workers
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.settings.deciding import part_key
from domainbert.settings.stage import stage
from domainbert.stages.labelled_training import Start, fit_labelled, save_seed, train_seeds, validation_batches
from domainbert.tasks.config import TaskConfig
from domainbert.training.config import LoggerName, Precision, Runtime
from domainbert.training.optim_config import OptimConfig, ScheduleConfig

if TYPE_CHECKING:
    from domainbert.stages.early_checks import Given
    from domainbert.tasks.task import Task

SPEED_ONLY = {"micro_batch_size", "activation_checkpointing", "num_workers", "loggers", "checkpoint_every"}
PARTS = "seeds"


def _check(init: str, encoder: EncoderConfig | None, max_length: int | None, **_: Any) -> None:
    if init == "pretrained" and encoder is not None:
        raise DomainbertError("encoder: is of no use with init: pretrained; expected init: random, or no encoder")
    check_length(max_length, encoder)


@stage(_check)
def finetune(
    out: Path,
    model: ModelPath,
    task: TaskConfig,
    train: Path,
    validation: Path,
    init: Literal["pretrained", "random"] = "pretrained",
    encoder: EncoderConfig | None = None,
    max_length: Length | None = None,
    batch_size: BatchSize = 32,
    max_epochs: Epochs = 10,
    patience: PositiveInt | None = None,
    optim: OptimConfig = OptimConfig(lr=1e-4, head_lr=1e-3),
    schedule: ScheduleConfig = ScheduleConfig(warmup_fraction=0.1),
    seeds: Seeds = (1,),
    precision: Precision = "auto",
    micro_batch_size: BatchSize | None = None,
    activation_checkpointing: bool = False,
    num_workers: Workers = 0,
    loggers: tuple[LoggerName, ...] = ("jsonl", "tensorboard"),
    checkpoint_every: PositiveInt | None = None,
    trainer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Fine-tune a model on a labelled task, and keep the epoch that is best on validation.

    Args:
        out: the folder to write: a model folder for each seed (`seed-1`, ...), and `seeds.json` that names the best.
            Seeds that are finished there with the same settings and inputs are kept, and one that has checkpoints of
            them goes on from the newest; one of other settings is trained again.
        model: a model folder; or, with `init: random` and an `encoder`, a tokenizer folder.
        task: what is learnt (`Ner`, `Classification`, ...), and the format of its files.
        train: the labelled training set; its labels are those the model will know.
        validation: the labelled set by which the epoch is chosen. The test set has no place here.
        init: `pretrained` starts from the model's weights, `random` from none: the honest baseline.
        encoder: architecture for `init: random`; None takes the model's own.
        max_length: tokens of a window, [CLS] and [SEP] included; longer inputs are read in overlapping windows. None
            takes what the encoder has positions for; those beyond the rows of its pretraining were never trained, so
            give that length here if inputs are longer.
        batch_size: sentences or texts of an optimiser step, over all devices.
        max_epochs: passes over the training set.
        patience: epochs without improvement on validation after which training stops; None never stops early.
        optim: the optimiser; `head_lr` is the new head's learning rate.
        schedule: the learning rate over the steps.
        seeds: one training each: of the head's weights, the order and the dropout. If others are asked for, those that
            are finished are kept, and only new ones are trained; the folder of one that is dropped is removed.
        precision: `auto` is bf16-mixed on hardware good at it (GPUs, CPUs with AMX or AVX512-BF16), else 32-true.
        micro_batch_size: sentences a device computes at once; None takes its share of the batch.
        activation_checkpointing: keep only what goes into each layer, and compute the layer again in the backward pass:
            a third more arithmetic, a fraction of the memory, and the same result.
        num_workers: processes that build batches beside the training process.
        loggers: where metrics go; `wandb` and `mlflow` need the extra of that name.
        checkpoint_every: optimiser steps between checkpoints; None writes one every ten minutes. One is written after
            each epoch (of a large model not after each, if saving takes more than a twentieth of the time) and when a
            signal ends the training, too.
        trainer: other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy`, ...

    Raises:
        DomainbertError: anything wrong with the labelled files; a validation label that training does not have;
            `max_length` beyond the encoder's positions.
    """
    key = part_key(locals(), PARTS, SPEED_ONLY)
    import torch

    from domainbert.data.batches import LabelledTrainBatches
    from domainbert.data.examples import entry_ids
    from domainbert.data.order import GlobalOrder
    from domainbert.encoders.used_entries import UsedEntries
    from domainbert.tasks.finetuning import FineTuning
    from domainbert.tasks.task import read_task
    from domainbert.training.callbacks import KeepBest
    from domainbert.training.fit import Steps, TrainingData

    train_set, validation_set, fitted = read_task(task, train, validation)
    train_items, validation_items = train_set.items, validation_set.items

    def train_seed(seed: int, folder: Path) -> dict[str, Any]:
        start = _start(model, init, encoder, fitted, max_length)
        start.model.encoder.activation_checkpointing = activation_checkpointing
        examples = fitted.encode(train_items, start.tokenizer, start.window)
        held_out = fitted.encode(validation_items, start.tokenizer, start.window)
        entries = UsedEntries(start.model, torch.from_numpy(entry_ids([*examples, *held_out], start.tokenizer)))
        steps = Steps.of_epochs(max_epochs, batch_size, len(examples))
        order = GlobalOrder(len(examples), batch_size, seed)
        module = FineTuning(start.model, fitted, optim, schedule, steps.total, validation_items, seed, entries.row)
        data = TrainingData(
            lambda share, steps: LabelledTrainBatches(examples, start.tokenizer, order, share, steps),
            [validation_batches(held_out, start.tokenizer)],
            lambda step: {"lines": [train_items[i].line for i in order.batch(step)[1].tolist()]},
        )
        runtime = Runtime(folder, precision, micro_batch_size, num_workers, loggers, trainer or {}, checkpoint_every)
        best = KeepBest(task.headline.monitor, patience, task.headline.higher_is_better)
        result = fit_labelled(f"finetune seed {seed}", module, data, steps, runtime, task.headline, best)
        facts = {"started from": f"{init} weights, seed {seed}"}
        save_seed(folder, start, entries, fitted, task.headline, "Fine-tuned", facts, result)
        return result

    return train_seeds(out, seeds, key, task.headline, train_seed)


def check_arguments(given: Given) -> None:
    """Loggers, the labelled files, the model, and the length of its windows."""
    from domainbert.stages.early_checks import (
        check_loggers,
        check_max_length,
        check_model,
        check_tokenizer,
        check_training_files,
        encoder_of,
    )

    if given["encoder"] is not None:
        check_tokenizer(given, "model", given["model"])
    else:
        check_model(given, "model", given["model"], trained=given["init"] == "pretrained")
    check_max_length(given, given["encoder"] or encoder_of(given, given["model"]))
    check_training_files(given)
    check_loggers(given)


def _start(path: Path, init: str, encoder: EncoderConfig | None, task: Task[Any, Any], max_length: int | None) -> Start:
    from domainbert.encoders.config import VocabularyFacts
    from domainbert.encoders.families import build_model
    from domainbert.models.folder import load_model, open_model
    from domainbert.tokenization.load import load_tokenizer

    if init == "pretrained":
        model, folder, _ = load_model(path, task.head, task.labels)
        window = _window(max_length, folder.config)
        return Start(model, folder.config, folder.tokenizer(), window, folder.teachers)
    if encoder is None:
        folder = open_model(path)
        encoder, path = folder.config, folder.path
    tokenizer = load_tokenizer(path)
    vocabulary = VocabularyFacts(tokenizer.vocab_size, tokenizer.pad_id)
    model = build_model(encoder, vocabulary, task.head, len(task.labels))
    return Start(model, encoder, tokenizer, _window(max_length, encoder))


def _window(max_length: int | None, config: EncoderConfig) -> int:
    check_length(max_length, config)
    return config.max_length if max_length is None else max_length
