"""`distill-task`: a smaller model learns a task from fine-tuned models, also on text without labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.corpus.config import CorpusConfig
from domainbert.encoders.student_config import StudentConfig
from domainbert.errors import DomainbertError
from domainbert.files import write_json
from domainbert.model_card import model_card
from domainbert.objectives.config import OptimConfig, ScheduleConfig
from domainbert.objectives.distillation.config import LossConfig
from domainbert.objectives.task_config import TaskConfig
from domainbert.ranks import process_rank
from domainbert.training.checkpoint_files import FINISHED
from domainbert.training.config import LoggerName, Precision, Runtime

if TYPE_CHECKING:
    from domainbert.data.examples import Example
    from domainbert.data.soft_labels import SoftLabels
    from domainbert.encoders.config import EncoderConfig
    from domainbert.encoders.heads import EncoderWithHead
    from domainbert.inference import Predictor
    from domainbert.objectives.task import Task
    from domainbert.teachers import TransferText
    from domainbert.tokenization.load import DomainTokenizer

SPEED_ONLY = {"micro_batch_size", "num_workers", "loggers", "checkpoint_every", "cache"}
_VALIDATION_TOKENS = 16_384  # computed at once; more would only need more memory


def distill_task(
    out: Path,
    teachers: list[Path],
    task: TaskConfig,
    train: Path,
    validation: Path,
    losses: list[LossConfig],
    model: Path | None = None,
    student: StudentConfig = StudentConfig(),
    unlabelled: CorpusConfig | None = None,
    max_unlabelled: int | None = 20_000,
    unlabelled_batch_size: int = 64,
    cache: str | None = None,
    top_k: int = 64,
    max_length: int | None = None,
    batch_size: int = 32,
    max_epochs: int = 10,
    patience: int | None = None,
    unfreeze_every: int = 0,
    dropout: float | None = None,
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
    """Distil fine-tuned models into a smaller one on a labelled task, and keep the epoch that is best on validation.

    The student may read text without labels beside the training set: its teachers say what they make of it. Methods in
    several stages are this one run several times, each with its losses, the next from the folder of the one before.
    `losses: [HardTargets]` trains the same student without a teacher.

    Args:
        out: the folder to write, as `finetune` writes it: a model folder for each seed, and `seeds.json`. Seeds that
            are finished there are kept, and one that has checkpoints goes on from the newest.
        teachers: fine-tuned model folders for the same labels; several are an ensemble, whose logits are averaged.
        task: `Ner` or `Classification`, and the format of its files, as for `finetune`.
        train: the labelled training set.
        validation: the labelled set by which the epoch is chosen. The test set has no place here.
        losses: what the student learns from; their weighted sum is the loss, and each is logged. Where none looks at
            what is predicted, as in TinyBERT's intermediate stage, the last epoch is kept.
        model: a model folder that the student starts from, such as one that `distill` wrote; its vocabulary may be
            another one where the losses compare predictions. None makes the student of the first teacher.
        student: what a student that is made of the first teacher looks like, and what it takes over.
        unlabelled: text of the domain, cut into sentences.
        max_unlabelled: take so many sentences of it, drawn at random; null takes all.
        unlabelled_batch_size: sentences of an optimiser step beside those of the training set.
        cache: a folder, made if there is none, where the teachers' logits are kept in half precision, by teachers and
            text, so that they are asked once for all epochs, seeds and runs; null asks them at every step.
        top_k: in the cache keep so many logits of each word or text; the other labels share what is left evenly.
        max_length: tokens of a window, [CLS] and [SEP] included; longer inputs are read in overlapping windows. None
            takes what the encoder has positions for.
        batch_size: labelled sentences or texts of an optimiser step, over all devices.
        max_epochs: passes over the training set.
        patience: epochs without improvement on validation after which training stops; None never stops early.
        unfreeze_every: optimiser steps after which one layer more learns, from the top, the head first and the
            embeddings last; 0 lets all learn from the start.
        dropout: overrides the student's dropout during this stage; the model folder keeps its own.
        optim: the optimiser; `head_lr` is the learning rate of head and projections.
        schedule: the learning rate over the steps.
        seeds: each gives a training of its own: of the order, new weights and dropout.
        precision: `auto` is bf16-mixed where the hardware is good at it (GPUs, CPUs with AMX), else 32-true.
        micro_batch_size: labelled examples a device computes at once; None takes its share of the batch.
        num_workers: processes that build batches beside the training process.
        loggers: where metrics go; `wandb` and `mlflow` need the extra of that name.
        checkpoint_every: optimiser steps between checkpoints; None writes one every ten minutes. One is written when a
            signal ends the training, too.
        trainer: other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy`, ...

    Raises:
        DomainbertError: anything wrong with the files; teachers with other labels; a loss that cannot compare the two,
            by its place in the list; a student with another vocabulary and losses that compare pieces, or no cache.
    """
    import lightning

    from domainbert.objectives.task import task_files
    from domainbert.teachers import load_teachers

    if len(set(seeds)) != len(seeds) or not seeds:
        raise DomainbertError(f"seeds: found {list(seeds)}; expected one or more different numbers")
    files = task_files(task)
    train_items, validation_items = files.read(train), files.read(validation)
    fitted = files.task(train_items)
    files.check(validation_items, fitted, validation)
    asked = load_teachers(teachers, fitted, precision)
    text = _transfer_text(train_items, unlabelled, max_unlabelled)
    rows = []
    for seed in seeds:
        folder = out / f"seed-{seed}"
        result = _finished(folder)
        if result is None:
            lightning.seed_everything(seed, verbose=False)
            start = _start(model, student, asked, fitted, dropout, max_length)
            runtime = Runtime(
                folder, precision, micro_batch_size, num_workers, loggers, trainer or {}, checkpoint_every
            )
            batch = _BatchSizes(batch_size, unlabelled_batch_size if text.sentences else 0)
            learning = _Learning(
                losses,
                asked,
                teachers,
                cache,
                top_k,
                batch,
                max_epochs,
                patience,
                unfreeze_every,
                optim,
                schedule,
                seed,
            )
            result = _train(start, learning, fitted, text, validation_items, runtime)
            _save(folder, start, fitted, seed, result)
        rows.append(result | {"seed": seed})
    return _summarise(out, rows)


@dataclass(frozen=True)
class _Start:
    """The student before training: its model, the architecture to save, its vocabulary, tokens of a window."""

    model: EncoderWithHead
    config: EncoderConfig
    tokenizer: DomainTokenizer
    window: int


@dataclass(frozen=True)
class _BatchSizes:
    """Examples of an optimiser step."""

    labelled: int
    unlabelled: int


@dataclass(frozen=True)
class _Learning:
    """What decides the outcome of a training, but for student and data."""

    losses: list[LossConfig]
    teachers: list[Predictor]
    paths: list[Path]
    cache: str | None
    top_k: int
    batch: _BatchSizes
    max_epochs: int
    patience: int | None
    unfreeze_every: int
    optim: OptimConfig
    schedule: ScheduleConfig
    seed: int


def _transfer_text(items: Sequence[Any], unlabelled: CorpusConfig | None, most: int | None) -> TransferText:
    """The training set and, beside it, sentences of the corpus that have words."""
    from domainbert.corpus.documents import read_documents
    from domainbert.data.sentences import sample_sentences
    from domainbert.teachers import TransferText

    if unlabelled is None:
        return TransferText(items, [])
    sentences, total = sample_sentences((document.text for document in read_documents(unlabelled)), most, seed=0)
    print(f"unlabelled: {len(sentences):,} of {total:,} different sentences")
    return TransferText(items, sentences)


def _start(
    path: Path | None,
    student: StudentConfig,
    teachers: Sequence[Predictor],
    task: Task,
    dropout: float | None,
    max_length: int | None,
) -> _Start:
    from domainbert.encoders.students import build_student, student_config
    from domainbert.hub import load_model

    teacher = teachers[0]
    if path is not None:
        if student != StudentConfig():
            raise DomainbertError("student: is of no use with a model to start from; expected one of the two")
        model, folder, _ = load_model(path, task.head, task.labels, dropout)
        config, tokenizer = folder.config, folder.tokenizer()
    else:
        config, tokenizer = student_config(student, teacher.config), teacher.tokenizer
        trained = config if dropout is None else config.with_dropout(dropout)
        vocab_size = teacher.model.encoder.input_embeddings.num_embeddings
        model, taken = build_student(trained, student, teacher.model, task.head, len(task.labels), vocab_size)
        print(f"student: {', '.join(taken) or 'nothing'} of the teacher; the rest starts at random")
    if max_length is not None and max_length > config.max_length:
        raise DomainbertError(f"max_length: {max_length}; the student has positions for {config.max_length} tokens")
    return _Start(model, config, tokenizer, max_length or min(config.max_length, teacher.max_length))


def _ask_before(
    start: _Start, learning: _Learning, task: Task, text: TransferText, examples: Sequence[Example], looks: bool
) -> SoftLabels | None:
    """The teachers' logits from the cache; None where they are asked at every step."""
    from domainbert.teachers import soft_labels

    same = all(start.tokenizer.fingerprint == teacher.tokenizer.fingerprint for teacher in learning.teachers)
    if not same and looks:
        raise DomainbertError(
            "losses: some compare hidden states or attention, but the student has another vocabulary than its teacher; "
            "expected losses on predictions only (SoftTargets, LogitMSE, HardTargets)"
        )
    if learning.cache is None and not same:
        raise DomainbertError("cache: missing; a teacher with another vocabulary is asked before the training")
    if learning.cache is None:
        return None
    sizes = [example.num_outputs for example in examples]
    return soft_labels(learning.teachers, learning.paths, text, task, sizes, Path(learning.cache), learning.top_k)


def _train(
    start: _Start,
    learning: _Learning,
    task: Task,
    text: TransferText,
    validation: Sequence[Any],
    runtime: Runtime,
) -> dict[str, Any]:
    from domainbert.data.distillation import DistillationBatches
    from domainbert.data.modules import LabelledBatches, TrainAndValidation
    from domainbert.data.order import GlobalOrder
    from domainbert.objectives.distillation.modules import TaskDistillation
    from domainbert.objectives.distillation.weighted import WeightedLosses
    from domainbert.training.callbacks import History, KeepBest, ProgressLines
    from domainbert.training.checkpoints import Checkpoints
    from domainbert.training.numbers import NumberWatch
    from domainbert.training.trainer import build_trainer

    tokenizer, batch, seed = start.tokenizer, learning.batch, learning.seed
    losses = WeightedLosses(learning.losses, start.model.encoder, learning.teachers[0].model.encoder)
    if "all" in losses.reads:
        raise DomainbertError("losses: SoftTargets with positions: all is for distill; expected positions: predicted")
    examples = text.encode(task, tokenizer, start.window)
    held_out = task.encode(validation, tokenizer, start.window)
    logits = None
    if losses.needs_teacher:
        logits = _ask_before(start, learning, task, text, examples, losses.needs_hidden)
    count = len(text.items)
    epoch = -(-count // batch.labelled)
    steps = epoch * learning.max_epochs
    models = [teacher.model for teacher in learning.teachers] if losses.needs_teacher else []
    objective = TaskDistillation(
        start.model, models, losses, task, learning.optim, learning.schedule, steps, validation, seed,
        learning.unfreeze_every,
    )  # fmt: skip
    orders = [GlobalOrder(count, batch.labelled, seed)]
    if batch.unlabelled:
        orders.append(GlobalOrder(len(examples) - count, batch.unlabelled, seed))
    history, best = History(), KeepBest("validation/f1", learning.patience)
    numbers = NumberWatch(runtime.out, lambda step: {"items": orders[0].batch(step)[1].tolist()})
    watching = [history, best] if losses.reads else [history]
    progress = ProgressLines(f"distill-task seed {seed}", steps)
    callbacks = [*watching, numbers, progress, Checkpoints(runtime.out, runtime.checkpoint_every)]
    trainer = build_trainer(runtime, steps, batch.labelled, epoch, callbacks)
    data = TrainAndValidation(
        lambda share, steps: DistillationBatches(examples, tokenizer, orders, share, steps, logits),
        lambda share: LabelledBatches(held_out, tokenizer, _VALIDATION_TOKENS, share),
        steps,
        runtime.num_workers,
    )
    trainer.fit(objective, datamodule=data)
    at_best = history.rows[-1]
    if losses.reads:
        best.restore(objective)
        at_best = next(row for row in history.rows if row["step"] == best.best_step)
    print(f"seed {seed}: epoch {int(at_best['step']) // epoch} of {len(history.rows)}: F1 {at_best['f1']:.4f}")
    return {
        "validation": at_best,
        "best_epoch": int(at_best["step"]) // epoch,
        "skipped_steps": numbers.skipped_steps,
        "loss_spikes": numbers.loss_spikes,
        "history": history.rows,
    }


def _finished(folder: Path) -> dict[str, Any] | None:
    """What the training of a seed gave, if it was completed before a later one was interrupted."""
    file = folder / FINISHED
    if not file.is_file():
        return None
    print(f"{folder.name}: finished before")
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result


def _save(folder: Path, start: _Start, task: Task, seed: int, result: dict[str, Any]) -> None:
    """Write the model folder of a seed, and that its training is complete. The first of several processes does."""
    from domainbert.hub import save_model
    from domainbert.training.state import whole_weights

    weights = whole_weights(start.model)
    if process_rank() != 0:
        return
    facts = {
        "labels": ", ".join(task.labels),
        "seed": seed,
        "best epoch": result["best_epoch"],
        "validation F1": f"{result['validation']['f1']:.4f}",
    }
    usage = f"from domainbert import load_{'classifier' if task.head == 'sequence' else 'tagger'}"
    card = model_card("Distilled domain model", "Distilled on its task with domainbert.", facts, usage)
    model, tokenizer = start.model, start.tokenizer
    save_model(folder, model, start.config, tokenizer, task.head, card, task.labels, start.window, weights)
    write_json(folder / FINISHED, result)


def _summarise(out: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    scores = [row["validation"]["f1"] for row in rows]
    best = f"seed-{rows[scores.index(max(scores))]['seed']}"
    by_seed = {f"seed-{row['seed']}": score for row, score in zip(rows, scores, strict=True)}
    if process_rank() == 0:
        write_json(out / "seeds.json", {"best": best, "validation_f1": by_seed})
    return {"validation_f1": sum(scores) / len(scores), "best": best, "seeds": list(rows)}
