"""`distill-task`: a smaller model learns a task from fine-tuned models, also on text without labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import ModelPath, model_name
from domainbert.base.ranges import BatchSize, Count, Dropout, Epochs, Items, Length, PositiveInt, Seeds, Workers
from domainbert.corpus.config import CorpusConfig
from domainbert.distillation.config import LossConfig
from domainbert.distillation.prediction_config import LogitMSE
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.config import check_length
from domainbert.settings.deciding import part_key
from domainbert.settings.stage import stage
from domainbert.stages.labelled_training import Start, fit_labelled, save_seed, train_seeds, validation_batches
from domainbert.tasks.config import TaskConfig
from domainbert.training.config import LoggerName, Precision, Runtime
from domainbert.training.optim_config import OptimConfig, ScheduleConfig

if TYPE_CHECKING:
    from domainbert.distillation.teachers import Teachers
    from domainbert.distillation.weighted import WeightedLosses
    from domainbert.stages.early_checks import Given
    from domainbert.tasks.task import Task

SPEED_ONLY = {"micro_batch_size", "activation_checkpointing", "num_workers", "loggers", "checkpoint_every"}
PARTS = "seeds"


def _check(model: Path | None, student: StudentConfig, max_length: int | None, **_: Any) -> None:
    if model is not None and student != StudentConfig():
        raise DomainbertError("student: is of no use with a model to start from; expected one of the two")
    check_length(max_length, student.encoder)


@stage(_check)
def distill_task(
    out: Path,
    teachers: Annotated[list[ModelPath], Items()],
    task: TaskConfig,
    train: Path,
    validation: Path,
    losses: Annotated[list[LossConfig], Items()],
    model: ModelPath | None = None,
    student: StudentConfig = StudentConfig(),
    unlabelled: CorpusConfig | None = None,
    max_unlabelled: PositiveInt | None = 20_000,
    unlabelled_batch_size: BatchSize = 64,
    cache: str | None = None,
    top_k: PositiveInt = 64,
    max_length: Length | None = None,
    batch_size: BatchSize = 32,
    max_epochs: Epochs = 10,
    patience: PositiveInt | None = None,
    unfreeze_every: Count = 0,
    dropout: Dropout | None = None,
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
    """Distil fine-tuned models into a smaller one on a labelled task, and keep the epoch that is best on validation.

    The student may read text without labels beside the training set: its teachers say what they make of it. Methods in
    several stages are this one run several times, each with its losses, the next from the folder of the one before.
    `losses: [HardTargets]` trains the same student without a teacher.

    Args:
        out: the folder to write, as `finetune` writes it: a model folder for each seed, and `seeds.json`. Seeds that
            are finished there are kept, and one that has checkpoints goes on from the newest.
        teachers: fine-tuned model folders for the same labels; several are an ensemble, whose logits are averaged, for
            losses that read no hidden layers.
        task: what is learnt (`Ner`, `Classification`, ...), and the format of its files, as for `finetune`.
        train: the labelled training set.
        validation: the labelled set by which the epoch is chosen. The test set has no place here.
        losses: what the student learns from; their weighted sum is the loss, and each is logged. Where none looks at
            what is predicted, as in TinyBERT's intermediate stage, the last epoch is kept.
        model: a model folder that the student starts from, such as one that `distill` wrote; its vocabulary may be
            another one where the losses compare predictions and there is a `cache`. None makes the student of the
            first teacher.
        student: what a student that is made of the first teacher looks like, and what it takes over.
        unlabelled: text of the domain, cut into sentences.
        max_unlabelled: take so many sentences of it, drawn at random; null takes all.
        unlabelled_batch_size: sentences of an optimiser step beside those of the training set.
        cache: a folder, made if there is none, where the teachers' logits are kept in half precision, by teachers and
            text, so that they are asked once for all epochs, seeds and runs; null asks them at every step. A teacher
            that is asked before reads windows of its own length.
        top_k: in the cache keep so many logits of each word or text; the other labels share what is left evenly.
        max_length: tokens of a window, [CLS] and [SEP] included; longer inputs are read in overlapping windows. None
            takes what the student has positions for, but not more than its teachers were trained on.
        batch_size: labelled sentences or texts of an optimiser step, over all devices.
        max_epochs: passes over the training set.
        patience: epochs without improvement on validation after which training stops, where the best epoch is kept;
            None never stops early.
        unfreeze_every: optimiser steps after which one layer more learns, from the top, the head first and the
            embeddings last; 0 lets all learn from the start.
        dropout: overrides the student's dropout during this stage; the model folder keeps its own.
        optim: the optimiser; `head_lr` is the learning rate of head and projections.
        schedule: the learning rate over the steps.
        seeds: each gives a training of its own: of the order, new weights and dropout. If others are asked for, those
            that are finished are kept, and only new ones are trained; the folder of one that is dropped is removed.
        precision: `auto` is bf16-mixed on hardware good at it (GPUs, CPUs with AMX or AVX512-BF16), else 32-true.
        micro_batch_size: labelled examples a device computes at once; None takes its share of the batch.
        activation_checkpointing: keep only what goes into each layer, and compute the layer again in the backward pass:
            a third more arithmetic, a fraction of the memory, and the same result.
        num_workers: processes that build batches beside the training process.
        loggers: where metrics go; `wandb` and `mlflow` need the extra of that name.
        checkpoint_every: optimiser steps between checkpoints; None writes one every ten minutes. One is written after
            each epoch (of a large model not after each, if saving takes more than a twentieth of the time) and when a
            signal ends the training, too.
        trainer: other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy` (not fsdp), ...

    Raises:
        DomainbertError: anything wrong with the files; teachers with other labels; a loss that cannot compare the two,
            by its place in the list; a student with another vocabulary and losses that compare pieces, or no cache.
    """
    key = part_key(locals(), PARTS, SPEED_ONLY)
    import torch

    from domainbert.data.examples import entry_ids
    from domainbert.data.order import GlobalOrder
    from domainbert.distillation.batches import DistillationBatches
    from domainbert.distillation.on_task import TaskDistillation
    from domainbert.distillation.teachers import TransferText, load_teachers
    from domainbert.distillation.weighted import WeightedLosses
    from domainbert.encoders.used_entries import UsedEntries
    from domainbert.tasks.task import read_task
    from domainbert.training.callbacks import KeepBest
    from domainbert.training.fit import Steps, TrainingData

    train_set, validation_set, fitted = read_task(task, train, validation)
    train_items, validation_items = train_set.items, validation_set.items
    asked = load_teachers(teachers, fitted, precision, Path(cache) if cache else None, top_k)
    text = TransferText.of(train_items, unlabelled, max_unlabelled)

    def train_seed(seed: int, folder: Path) -> dict[str, Any]:
        start = _start(model, student, asked, fitted, dropout, max_length)
        start.model.encoder.activation_checkpointing = activation_checkpointing
        weighted = WeightedLosses(losses, start.model.encoder, asked.predictors[0].model.encoder)
        _check_losses(weighted, losses, start, asked, asked.kept(fitted) < len(fitted.labels))
        examples = text.encode(fitted, start.tokenizer, start.window)
        held_out = fitted.encode(validation_items, start.tokenizer, start.window)
        before = cache is not None and "predicted" in weighted.reads
        logits = asked.soft_labels(text, fitted, [one.num_outputs for one in examples]) if before else None
        while_training = weighted.needs_hidden or (weighted.needs_teacher and not before)
        entries = UsedEntries(start.model, torch.from_numpy(entry_ids([*examples, *held_out], start.tokenizer)))
        steps = Steps.of_epochs(max_epochs, batch_size, len(text.items))
        module = TaskDistillation(
            start.model,
            [teacher.model for teacher in asked.predictors] if while_training else [],
            weighted,
            fitted,
            optim,
            schedule,
            steps.total,
            validation_items,
            seed,
            unfreeze_every,
            entries.row,
        )
        orders = [GlobalOrder(len(text.items), batch_size, seed)]
        if text.sentences:
            orders.append(GlobalOrder(len(text.sentences), unlabelled_batch_size, seed))
        data = TrainingData(
            lambda share, steps: DistillationBatches(examples, start.tokenizer, orders, share, steps, logits),
            [validation_batches(held_out, start.tokenizer)],
            lambda step: {"lines": [train_items[i].line for i in orders[0].batch(step)[1].tolist()]},
        )
        runtime = Runtime(folder, precision, micro_batch_size, num_workers, loggers, trainer or {}, checkpoint_every)
        head, label = task.headline, f"distill-task seed {seed}"
        # Where no loss looks at what is predicted, the last epoch is kept.
        best = KeepBest(head.monitor, patience, head.higher_is_better) if weighted.reads else None
        result = fit_labelled(label, module, data, steps, runtime, head, best)
        facts = {"teachers": ", ".join(str(path) for path in teachers), "seed": seed}
        save_seed(folder, start, entries, fitted, task.headline, "Distilled", facts, result)
        return result

    return train_seeds(out, seeds, key, task.headline, train_seed)


def check_arguments(given: Given) -> None:
    """Loggers, the labelled files, the teachers, and what the student starts from."""
    from domainbert.stages.early_checks import (
        check_corpus,
        check_loggers,
        check_max_length,
        check_model,
        check_task,
        check_training_files,
        encoder_of,
    )

    for number, path in enumerate(given["teachers"]):
        check_model(given, f"teachers[{number}]", path)
        check_task(given, f"teachers[{number}]", path, given["task"].name)
    check_model(given, "model", given["model"])
    check_max_length(given, given["student"].encoder or encoder_of(given, given["model"]))
    check_training_files(given)
    check_corpus(given, "unlabelled")
    check_loggers(given)


def _start(
    path: Path | None,
    student: StudentConfig,
    teachers: Teachers,
    task: Task[Any, Any],
    dropout: Dropout | None,
    max_length: int | None,
) -> Start:
    from domainbert.distillation.students import build_student, student_config
    from domainbert.encoders.config import VocabularyFacts
    from domainbert.models.folder import load_model

    if path is not None:
        model, folder, _ = load_model(path, task.head, task.labels, dropout)
        config, tokenizer = folder.config, folder.tokenizer()
    else:
        teacher = teachers.predictors[0]
        config, tokenizer = student_config(student, teacher.config), teacher.tokenizer
        trained = config if dropout is None else config.with_dropout(dropout)
        vocabulary = VocabularyFacts(teacher.model.encoder.input_embeddings.num_embeddings, tokenizer.pad_id)
        model, taken = build_student(trained, student, teacher.model, task.head, len(task.labels), vocabulary)
        print(f"student: {', '.join(taken) or 'nothing'} of the teacher; the rest starts at random")
    if max_length is not None and max_length > config.max_length:
        raise DomainbertError(f"max_length: {max_length}; the student has positions for {config.max_length} tokens")
    usual = min(config.max_length, teachers.usual_length)
    names = tuple(map(model_name, teachers.paths))
    return Start(model, config, tokenizer, usual if max_length is None else max_length, names)


def _check_losses(
    weighted: WeightedLosses, losses: Sequence[LossConfig], start: Start, teachers: Teachers, some_labels: bool
) -> None:
    """`DomainbertError` where student and teachers cannot be compared so."""
    if "all" in weighted.reads:
        raise DomainbertError("losses: SoftTargets with positions: all is for distill; expected positions: predicted")
    cached = teachers.cache is not None
    if any(isinstance(loss, LogitMSE) for loss in losses) and (teachers.have_crf or (cached and some_labels)):
        found = "a random field's are log-probabilities" if teachers.have_crf else "the cache holds top_k of them"
        raise DomainbertError(f"losses: LogitMSE compares logits of all labels, but {found}; expected SoftTargets")
    if not teachers.read_as(start.tokenizer):
        if weighted.needs_hidden:
            raise DomainbertError(
                "losses: some compare hidden states or attention, but the student has another vocabulary than its "
                "teacher; expected losses on predictions only (SoftTargets, LogitMSE, HardTargets)"
            )
        if weighted.needs_teacher and not cached:
            raise DomainbertError("cache: missing; a teacher with another vocabulary is asked before the training")
    if (weighted.needs_hidden or (weighted.needs_teacher and not cached)) and start.window > teachers.max_length:
        raise DomainbertError(
            f"max_length: {start.window}; a teacher has positions for {teachers.max_length} tokens; expected no more, "
            "or a cache and losses on predictions only"
        )
