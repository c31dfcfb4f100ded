"""`distill-task`: a smaller model learns a task from fine-tuned models, also on text without labels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.marks import TRAINED_MODEL
from domainbert.base.paths import ModelPath, check_whole, model_name
from domainbert.base.ranges import BatchSize, Count, Items, Length, PositiveInt
from domainbert.corpus.config import CorpusConfig
from domainbert.distillation.config import LossConfig, check_ensemble
from domainbert.distillation.prediction_config import HardTargets, LogitMSE, SoftTargets
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.config import check_length
from domainbert.stages.inputs import Inputs
from domainbert.stages.labelled_training import (
    LabelledTraining,
    Start,
    fit_labelled,
    save_seed,
    train_seeds,
    validation_batches,
)
from domainbert.stages.stage import stage

if TYPE_CHECKING:
    from domainbert.data.examples import Example
    from domainbert.distillation.teachers import Teachers, TransferText
    from domainbert.distillation.weighted import WeightedLosses
    from domainbert.labelled.items import Labelled
    from domainbert.stages.early_checks import Given
    from domainbert.tasks.config import TaskConfig
    from domainbert.tasks.task import Task
    from domainbert.training.fit import TrainingData


@dataclass(frozen=True, kw_only=True)
class DistillTask(LabelledTraining):
    """Settings of `distill-task`."""

    teachers: Annotated[list[ModelPath], Items()] = field(metadata=TRAINED_MODEL)
    """Fine-tuned model folders for the same labels; several are an ensemble, whose logits are averaged, for losses that
    read no hidden layers."""

    losses: Annotated[list[LossConfig], Items()]
    """Losses of the student, whose weighted sum is minimised; each is logged. Where none looks at what is predicted, as
    in TinyBERT's intermediate stage, the last epoch is kept, and `patience` ends nothing."""

    model: ModelPath | None = field(default=None, metadata=TRAINED_MODEL)
    """Model folder that the student starts from, such as one that `distill` wrote; its vocabulary may be another one
    where the losses compare predictions and there is a `cache`, but not for parsers and answers to questions. None
    makes the student of the first teacher."""

    student: StudentConfig = StudentConfig()
    """Architecture of a student that is made of the first teacher, and what it takes over."""

    unlabelled: CorpusConfig | None = None
    """Text of the domain, cut into sentences."""

    max_unlabelled: PositiveInt | None = 20_000
    """Sentences of it that are taken, drawn at random; None takes all."""

    unlabelled_batch_size: BatchSize = 64
    """Sentences of an optimiser step beside those of the training set."""

    cache: str | None = None
    """Folder, made if there is none, where the teachers' logits are kept in half precision, by teacher and text, so
    that each is asked once for all epochs, seeds, ensembles and runs; None asks them at every step. A teacher that is
    asked before reads windows of its own length."""

    top_k: PositiveInt = 64
    """Logits of each word or text that the cache keeps; the other labels share what is left evenly."""

    max_length: Length | None = None
    """Tokens of a window, [CLS] and [SEP] included; longer inputs are read in overlapping windows. None takes what the
    student has positions for, but not more than its teachers were trained on."""

    unfreeze_every: Count = 0
    """Optimiser steps after which one layer more learns, from the top, the head first and the embeddings last; 0 lets
    all learn from the start."""

    trainer: dict[str, Any] | None = None
    """Other arguments of `lightning.Trainer`: `devices`, `accelerator`, `strategy` (not fsdp), ..."""

    def __post_init__(self) -> None:
        """Check that the student is said once and has positions for a window, and that the task can be taught."""
        super().__post_init__()
        if self.model is not None and self.student != StudentConfig():
            raise DomainbertError("student: is of no use with a model to start from; expected one of the two")
        check_length(self.max_length, self.student.encoder)
        check_ensemble(len(self.teachers), self.losses)
        if self.unlabelled is not None and (reason := self.task.distillation.unlabelled_unsupported):
            raise DomainbertError(f"task: {reason}")
        if self.max_length is not None:
            self.task.check_window(self.max_length)
        for number, loss in enumerate(self.losses):
            if isinstance(loss, LogitMSE) and not self.task.distillation.has_logits:
                raise DomainbertError(
                    f"losses[{number}]: LogitMSE compares a logit for each label, which {self.task.name} has none of; "
                    "expected SoftTargets, HardTargets or losses on layers"
                )
            if isinstance(loss, SoftTargets) and loss.positions == "all":
                raise DomainbertError(f"losses[{number}]: positions: all is for distill; expected positions: predicted")
        if self.cache is not None and not self.task.distillation.has_logits:
            raise DomainbertError(
                f"cache: keeps a logit for each label, which {self.task.name} has none of; expected none"
            )
        if self.cache is not None:
            check_whole("cache", self.cache)
        if self.unlabelled is not None and self.task.reads_pairs:
            raise DomainbertError("unlabelled: sentences, which are single texts; the task reads pairs, expected none")


@stage
def distill_task(out: Path, settings: DistillTask, inputs: Inputs) -> dict[str, Any]:
    """Distil fine-tuned models into a smaller one on a labelled task, and keep the epoch that is best on validation.

    The student may read text without labels beside the training set: its teachers say what they make of it. Methods in
    several stages are this one run several times, each with its losses, the next from the folder of the one before.
    `losses: [HardTargets]` trains the same student without a teacher. `out` is as for `finetune`.

    Raises:
        DomainbertError: anything wrong with the files; teachers with other labels; a loss that cannot compare the two,
            by its place in the list; a student with another vocabulary and losses that compare pieces, or no cache.
    """
    from domainbert.distillation.teachers import TransferText, load_teachers
    from domainbert.tasks.capabilities import need_teaching
    from domainbert.tasks.task import read_task

    train, validation, task = read_task(settings.task, settings.train, settings.validation, inputs.labelled)
    if any(isinstance(loss, (SoftTargets, LogitMSE)) for loss in settings.losses):
        need_teaching(task)
    cache = Path(settings.cache) if settings.cache else None
    teachers = load_teachers(settings.teachers, task, settings.precision, cache, settings.top_k, inputs.model)
    text = TransferText.of(train, settings.unlabelled, settings.max_unlabelled, task.word_splitting)
    lesson = _Lesson(settings, inputs, task, teachers, text, validation)
    return train_seeds(out, settings.seeds, inputs.facts(), settings.chosen_by, lesson.train_seed)


def check_arguments(given: Given) -> None:
    """Check the labelled files, and that teachers and student are of the task."""
    for number, path in enumerate(given["teachers"]):
        given.check_task(f"teachers[{number}]", path, given["task"].name)
        given.check_pairs(f"teachers[{number}]", path)
    given.check_pairs("model")
    _check_vocabularies(given)
    given.check_max_length(given["student"].encoder or given.encoder_of(given["model"]))
    given.check_training_files()


def _check_vocabularies(given: Given) -> None:
    """Note different vocabularies of student and teachers that are there, where the task can compare no others."""
    named = [*(given["teachers"] if given["model"] is None else [given["model"], *given["teachers"]])]
    found: list[str | None] = []
    for path in named:
        folder = given.opened(path) if given.there(path) else None
        found.append(None)
        with suppress(DomainbertError):  # one that cannot be read has been told
            found[-1] = None if folder is None else folder.tokenizer().fingerprint
    with given.under("model"):
        _need_one_vocabulary(given["task"], given["losses"], given["model"] is not None, found)


def _need_one_vocabulary(
    task: TaskConfig, losses: Sequence[LossConfig], has_model: bool, fingerprints: Sequence[str | None]
) -> None:
    """Raise `DomainbertError` where a task that can be compared by one vocabulary alone has several; first that of the
    student, if it has a model of its own, then those of the teachers, None for one that is not known yet."""
    if not task.distillation.shares_vocabulary or all(isinstance(loss, HardTargets) for loss in losses):
        return
    names = [*(["model"] if has_model else []), *(f"teachers[{n}]" for n in range(len(fingerprints) - has_model))]
    known = [(name, one) for name, one in zip(names, fingerprints, strict=True) if one is not None]
    for name, one in known[1:]:
        if one != known[0][1]:
            first = known[0][0]
            raise DomainbertError(
                f"{first.partition('[')[0]}: {name} has another vocabulary than {first}; expected the same, by which "
                f"alone {task.name} can be compared"
            )


@dataclass(frozen=True)
class _Lesson:
    """Data that the students of all seeds learn from."""

    settings: DistillTask
    inputs: Inputs
    task: Task[Any, Any]
    teachers: Teachers
    text: TransferText
    validation: Labelled[Any]

    def train_seed(self, seed: int, folder: Path) -> dict[str, Any]:
        """Train a student, and write it to its folder."""
        import torch

        from domainbert.data.examples import entry_ids
        from domainbert.distillation.distilling import TaskDistillation
        from domainbert.distillation.weighted import WeightedLosses
        from domainbert.encoders.used_entries import UsedEntries
        from domainbert.tasks.task import encode_file
        from domainbert.training.callbacks import KeepBest
        from domainbert.training.fit import Steps

        settings, task, teachers = self.settings, self.task, self.teachers
        start = _start(settings, self.inputs, teachers, task)
        start.model.encoder.activation_checkpointing = settings.activation_checkpointing
        weighted = WeightedLosses(settings.losses, start.model.encoder, teachers.predictors[0].model.encoder)
        _check_losses(weighted, settings, start, teachers, teachers.drops_logits(task))
        examples = self.text.encode(task, start.tokenizer, start.window)
        held_out = encode_file(task, self.validation, start.tokenizer, start.window)
        before = teachers.cache is not None and "predicted" in weighted.reads
        data = self._data(seed, start, examples, held_out, before)
        entries = UsedEntries(start.model, torch.from_numpy(entry_ids([*examples, *held_out], start.tokenizer)))
        steps = Steps.of_epochs(settings.max_epochs, settings.batch_size, len(self.text.items))
        while_training = weighted.needs_hidden or (weighted.needs_teacher and not before)
        asked = [teacher.model for teacher in teachers.check(examples).predictors] if while_training else []
        how = (settings.optim, settings.schedule, steps.total, self.validation.items, seed, settings.unfreeze_every)
        module = TaskDistillation(start.model, asked, weighted, task, *how, entries.row)
        headline, label = settings.chosen_by, f"distill-task seed {seed}"
        # Where no loss looks at what is predicted, the last epoch is kept.
        best = KeepBest(headline, settings.patience) if weighted.reads else None
        averages = settings.averages(steps.total)
        result = fit_labelled(label, module, data, steps, settings.runtime(folder), headline, best, averages)
        facts = {"teachers": ", ".join(str(path) for path in settings.teachers), "seed": seed}
        base = settings.model or settings.teachers[0]
        save_seed(folder, start, entries, task, settings, "Distilled", facts, result, base)
        return result

    def _data(
        self, seed: int, start: Start, examples: list[Example], held_out: list[Example], asked_before: bool
    ) -> TrainingData:
        """Batches of labelled and other text, with the teachers' logits if they are asked before the training."""
        from domainbert.data.order import GlobalOrder
        from domainbert.distillation.batches import DistillationBatches
        from domainbert.training.fit import TrainingData

        text, settings = self.text, self.settings
        sizes = [example.num_outputs for example in examples]
        logits = self.teachers.soft_labels(text, self.task, sizes) if asked_before else None
        orders = [self.task.fitting.order(self.task, text.items, settings.batch_size, seed)]
        if text.sentences:
            orders.append(GlobalOrder(len(text.sentences), settings.unlabelled_batch_size, seed))
        return TrainingData(
            lambda share, steps: DistillationBatches(examples, start.tokenizer, orders, share, steps, logits),
            [validation_batches(held_out, start.tokenizer)],
            lambda step: {"lines": [text.labelled.where(i) for i in orders[0].batch(step)[1].tolist()]},
        )


def _start(settings: DistillTask, inputs: Inputs, teachers: Teachers, task: Task[Any, Any]) -> Start:
    from domainbert.distillation.students import build_student, student_config
    from domainbert.encoders.config import VocabularyFacts
    from domainbert.models.added_tokens import add_tokens
    from domainbert.models.folder import load_model

    student, dropout, max_length = settings.student, settings.dropout, settings.max_length
    if settings.model is not None:
        opened = inputs.model(settings.model)
        model, folder, made = load_model(opened, task.head_config, task.labels, dropout)
        config, tokenizer = folder.config, add_tokens(model, folder.tokenizer(), task.inputs.added_tokens(task))
        if not made:
            task.scaling.init_head(task, model.head)
    else:
        teacher = teachers.predictors[0]
        config, tokenizer = student_config(student, teacher.config), teacher.tokenizer
        vocabulary = VocabularyFacts(teacher.model.encoder.input_embeddings.num_embeddings, tokenizer.pad_id)
        outputs = task.head_config, len(task.labels), vocabulary
        model, taken = build_student(config.as_trained(dropout), student, teacher.model, *outputs)
        print(f"student: {', '.join(taken) or 'nothing'} of the teacher; the rest starts at random")
    if max_length is not None and max_length > config.max_length:
        raise DomainbertError(f"max_length: {max_length}; the student has positions for {config.max_length} tokens")
    window = max_length or min(config.max_length, teachers.usual_length)
    return Start(model, config, tokenizer, window, tuple(map(model_name, teachers.paths)))


def _check_losses(
    weighted: WeightedLosses, settings: DistillTask, start: Start, teachers: Teachers, some_labels: bool
) -> None:
    """Raise `DomainbertError` where the losses cannot compare student and teachers."""
    from domainbert.encoders.crf import crf_of

    cached, have_crf = teachers.cache is not None, teachers.have_crf or crf_of(start.model.head) is not None
    if any(isinstance(loss, LogitMSE) for loss in settings.losses) and (have_crf or (cached and some_labels)):
        found = "those of a CRF are log-probabilities" if have_crf else "the cache holds top_k of them"
        raise DomainbertError(f"losses: LogitMSE compares logits of all labels, but {found}; expected SoftTargets")
    own = [] if settings.model is None else [start.tokenizer.fingerprint]
    fingerprints = [*own, *(teacher.tokenizer.fingerprint for teacher in teachers.predictors)]
    _need_one_vocabulary(settings.task, settings.losses, settings.model is not None, fingerprints)
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
