"""`finetune`: entities or classes, from a model folder or from random weights, with several seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from domainbert.encoders.config import EncoderConfig
from domainbert.errors import DomainbertError
from domainbert.files import write_json
from domainbert.model_card import model_card
from domainbert.objectives.config import OptimConfig, ScheduleConfig
from domainbert.objectives.task_config import TaskConfig
from domainbert.ranks import process_rank
from domainbert.training.checkpoint_files import FINISHED
from domainbert.training.config import LoggerName, Precision, Runtime

if TYPE_CHECKING:
    from torch import Tensor

    from domainbert.encoders.heads import EncoderWithHead
    from domainbert.objectives.task import Task
    from domainbert.tokenization.load import DomainTokenizer

SPEED_ONLY = {"micro_batch_size", "num_workers", "loggers", "checkpoint_every"}
_VALIDATION_TOKENS = 16_384  # computed at once; more would only need more memory


def finetune(
    out: Path,
    model: Path,
    task: TaskConfig,
    train: Path,
    validation: Path,
    init: Literal["pretrained", "random"] = "pretrained",
    encoder: EncoderConfig | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    max_epochs: int = 10,
    patience: int | None = None,
    optim: OptimConfig = OptimConfig(lr=1e-4, head_lr=1e-3),
    schedule: ScheduleConfig = ScheduleConfig(warmup_fraction=0.1),
    seeds: tuple[int, ...] = (1,),
    precision: Precision = "auto",
    micro_batch_size: int | None = None,
    num_workers: int = 0,
    loggers: tuple[LoggerName, ...] = ("jsonl", "tensorboard"),
    checkpoint_every: int | None = None,
    trainer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Fine-tune a model on a labelled task, and keep the epoch that is best on validation.

    Args:
        out: the folder to write: a model folder for each seed (`seed-1`, ...), and `seeds.json` that names the best.
            Seeds that are finished there are kept, and one that has checkpoints goes on from the newest.
        model: a model folder; or, with `init: random` and an `encoder`, a tokenizer folder.
        task: `Ner` or `Classification`, and the format of its files.
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
        seeds: one training each: of the head's weights, the order and the dropout.
        precision: `auto` is bf16-mixed where the hardware is good at it (GPUs, CPUs with AMX), else 32-true.
        micro_batch_size: sentences a device computes at once; None takes its share of the batch.
        num_workers: processes that build batches beside the training process.
        loggers: where metrics go; `wandb` and `mlflow` need the extra of that name.
        checkpoint_every: optimiser steps between checkpoints; None writes one every ten minutes. One is written when a
            signal ends the training, too.
        trainer: other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy`, ...

    Raises:
        DomainbertError: anything wrong with the labelled files; a validation label that training does not have;
            `max_length` beyond the encoder's positions.
    """
    import lightning

    from domainbert.objectives.task import task_files
    from domainbert.tokenization.load import load_tokenizer

    if len(set(seeds)) != len(seeds) or not seeds:
        raise DomainbertError(f"seeds: found {list(seeds)}; expected one or more different numbers")
    files = task_files(task)
    train_items, validation_items = files.read(train), files.read(validation)
    fitted = files.task(train_items)
    files.check(validation_items, fitted, validation)
    finished = {seed: _finished(out / f"seed-{seed}") for seed in seeds}
    rows = []
    for seed in seeds:
        result = finished[seed]
        if result is None:
            lightning.seed_everything(seed, verbose=False)
            start = _start(model, init, encoder, fitted)
            tokenizer = load_tokenizer(start.tokenizer_folder)
            window = _window(max_length, start.config)
            folder = out / f"seed-{seed}"
            runtime = Runtime(
                folder, precision, micro_batch_size, num_workers, loggers, trainer or {}, checkpoint_every
            )
            training = _Training(
                start.model, fitted, tokenizer, window, batch_size, max_epochs, patience, optim, schedule, seed
            )
            result, weights = _train(training, train_items, validation_items, runtime)
            _save(folder, start, training, init, result, weights)
        rows.append(result | {"seed": seed})
    return _summarise(out, rows)


@dataclass(frozen=True)
class _Start:
    """What fine-tuning starts from."""

    model: EncoderWithHead
    config: EncoderConfig
    tokenizer_folder: Path


@dataclass(frozen=True)
class _Training:
    """What decides the outcome of a training, but for the data."""

    model: EncoderWithHead
    task: Task
    tokenizer: DomainTokenizer
    max_length: int
    batch_size: int
    max_epochs: int
    patience: int | None
    optim: OptimConfig
    schedule: ScheduleConfig
    seed: int


def _finished(folder: Path) -> dict[str, Any] | None:
    """What the training of a seed gave, if it was completed before a later one was interrupted."""
    file = folder / FINISHED
    if not file.is_file():
        return None
    print(f"{folder.name}: finished before")
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result


def _start(path: Path, init: str, encoder: EncoderConfig | None, task: Task) -> _Start:
    from domainbert.encoders.families import family
    from domainbert.encoders.heads import EncoderWithHead, build_head
    from domainbert.hub import load_model, open_model
    from domainbert.tokenization.load import load_tokenizer

    if init == "pretrained":
        if encoder is not None:
            raise DomainbertError("encoder: is of no use with init: pretrained; expected init: random, or no encoder")
        model, folder, _ = load_model(path, task.head, task.labels)
        folder.tokenizer()
        return _Start(model, folder.config, folder.path)
    if encoder is None:
        folder = open_model(path)
        encoder, path = folder.config, folder.path
    built = family(encoder).build_encoder(encoder, load_tokenizer(path).vocab_size)
    return _Start(EncoderWithHead(built, build_head(task.head, built, len(task.labels))), encoder, path)


def _window(max_length: int | None, config: EncoderConfig) -> int:
    if max_length is not None and max_length > config.max_length:
        raise DomainbertError(f"max_length: {max_length}; the encoder has positions for {config.max_length} tokens")
    return max_length or config.max_length


def _train(
    training: _Training, train: Sequence[Any], validation: Sequence[Any], runtime: Runtime
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is noted of a training, and its best weights; only the first of several processes gets these."""
    import torch

    from domainbert.data.examples import entry_ids
    from domainbert.data.modules import LabelledBatches, LabelledTrainBatches, TrainAndValidation
    from domainbert.data.order import GlobalOrder
    from domainbert.encoders.used_entries import UsedEntries
    from domainbert.objectives.finetuning import FineTuning
    from domainbert.training.callbacks import History, KeepBest, ProgressLines
    from domainbert.training.checkpoints import Checkpoints
    from domainbert.training.numbers import NumberWatch
    from domainbert.training.state import whole_weights
    from domainbert.training.trainer import build_trainer

    task, tokenizer, seed = training.task, training.tokenizer, training.seed
    examples = task.encode(train, tokenizer, training.max_length)
    held_out = task.encode(validation, tokenizer, training.max_length)
    epoch = -(-len(examples) // training.batch_size)
    steps = epoch * training.max_epochs
    entries = UsedEntries(training.model, torch.from_numpy(entry_ids([*examples, *held_out], tokenizer)))
    objective = FineTuning(
        training.model, task, training.optim, training.schedule, steps, validation, seed, entries.row
    )
    order = GlobalOrder(len(examples), training.batch_size, seed)
    history, best = History(), KeepBest("validation/f1", training.patience)
    numbers = NumberWatch(runtime.out, lambda step: {"lines": [train[i].line for i in order.batch(step)[1].tolist()]})
    progress, checkpoints = (
        ProgressLines(f"finetune seed {seed}", steps),
        Checkpoints(runtime.out, runtime.checkpoint_every),
    )
    callbacks = [history, best, numbers, progress, checkpoints]
    trainer = build_trainer(runtime, steps, training.batch_size, epoch, callbacks)
    data = TrainAndValidation(
        lambda share, steps: LabelledTrainBatches(examples, tokenizer, order, share, steps),
        lambda share: LabelledBatches(held_out, tokenizer, _VALIDATION_TOKENS, share),
        steps,
        runtime.num_workers,
    )
    trainer.fit(objective, datamodule=data)
    best.restore(objective)
    at_best = next(row for row in history.rows if row["step"] == best.best_step)
    print(f"seed {seed}: best of {len(history.rows)} epochs on validation: F1 {best.best:.4f} at step {best.best_step}")
    result = {
        "validation": at_best,
        "best_epoch": best.best_step // epoch,
        "skipped_steps": numbers.skipped_steps,
        "loss_spikes": numbers.loss_spikes,
        "history": history.rows,
    }
    weights = whole_weights(training.model)
    return result, entries.put_back(weights) if weights else {}


def _save(
    folder: Path, start: _Start, training: _Training, init: str, result: dict[str, Any], weights: dict[str, Tensor]
) -> None:
    """Write the model folder of a seed, and that its training is complete. The first of several processes does."""
    from domainbert.hub import save_model

    if process_rank() != 0:
        return
    task = training.task
    facts = {
        "labels": ", ".join(task.labels),
        "started from": f"{init} weights, seed {training.seed}",
        "best epoch": result["best_epoch"],
        "validation F1": f"{result['validation']['f1']:.4f}",
    }
    usage = f"from domainbert import load_{'classifier' if task.head == 'sequence' else 'tagger'}"
    card = model_card("Fine-tuned domain model", "Fine-tuned with domainbert.", facts, usage)
    tokenizer, window = training.tokenizer, training.max_length
    model = training.model
    save_model(folder, model, start.config, tokenizer, task.head, card, task.labels, window, weights)
    write_json(folder / FINISHED, result)


def _summarise(out: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    scores = [row["validation"]["f1"] for row in rows]
    best = rows[scores.index(max(scores))]
    names = {
        "best": f"seed-{best['seed']}",
        "validation_f1": {f"seed-{row['seed']}": s for row, s in zip(rows, scores, strict=True)},
    }
    if process_rank() == 0:
        write_json(out / "seeds.json", names)
    return {"validation_f1": sum(scores) / len(scores), "best": names["best"], "seeds": list(rows)}
