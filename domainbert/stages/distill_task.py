"""`distill-task`: a smaller model learns a task from fine-tuned models, also on text without labels."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.marks import TRAINED_MODEL
from domainbert.base.paths import ModelPath, check_whole
from domainbert.base.ranges import BatchSize, Count, Items, Length, PositiveInt
from domainbert.corpus.config import CorpusConfig
from domainbert.distillation.config import LossConfig, check_ensemble
from domainbert.distillation.prediction_config import LogitMSE, SoftTargets, need_one_vocabulary
from domainbert.distillation.student_config import StudentConfig
from domainbert.encoders.config import check_length
from domainbert.stages.inputs import Inputs
from domainbert.stages.labelled_training import LabelledTraining, fit_labelled, save_seed, train_seeds
from domainbert.stages.stage import stage

if TYPE_CHECKING:
    from domainbert.distillation.teachers import Teachers, TransferText
    from domainbert.labelled.items import Labelled
    from domainbert.stages.early_checks import Given


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
            raise DomainbertError("student: found with model; expected only one of them")
        check_length(self.max_length, self.student.encoder)
        check_ensemble(len(self.teachers), self.losses)
        if self.unlabelled is not None and (reason := self.task.distillation.unlabelled_unsupported):
            raise DomainbertError(f"task: {reason}")
        if self.max_length is not None:
            self.task.check_window(self.max_length)
        for number, loss in enumerate(self.losses):
            if isinstance(loss, LogitMSE) and not self.task.distillation.has_logits:
                raise DomainbertError(
                    f"losses[{number}]: LogitMSE compares a logit for each label, but {self.task.name} has none; "
                    "expected SoftTargets, HardTargets or losses on layers"
                )
            if isinstance(loss, SoftTargets) and loss.positions == "all":
                raise DomainbertError(
                    f"losses[{number}]: found positions: all; expected positions: predicted (all is for distill)"
                )
        if self.cache is not None and not self.task.distillation.has_logits:
            raise DomainbertError(
                f"cache: found a folder, but {self.task.name} has no logit for each label; expected null"
            )
        if self.cache is not None:
            check_whole("cache", self.cache)
        if self.unlabelled is not None and self.task.reads_pairs:
            raise DomainbertError("unlabelled: found single texts, but the task reads pairs; expected null")


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
    from domainbert.tasks.task import read_task

    train, validation, task = read_task(settings.task, settings.train, settings.validation, inputs.labelled)
    cache = Path(settings.cache) if settings.cache else None
    teachers = load_teachers(settings.teachers, task, settings.precision, cache, settings.top_k, inputs.model)
    text = TransferText.of(train, settings.unlabelled, settings.max_unlabelled, task.word_splitting)
    lesson = _Lesson(settings, inputs, teachers, text, validation)
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
        need_one_vocabulary(given["task"], given["losses"], given["model"] is not None, found)


@dataclass(frozen=True)
class _Lesson:
    """Data that the students of all seeds learn from."""

    settings: DistillTask
    inputs: Inputs
    teachers: Teachers
    text: TransferText
    validation: Labelled[Any]

    def train_seed(self, seed: int, folder: Path) -> dict[str, Any]:
        """Train a student, and write it to its folder."""
        from domainbert.distillation.on_task import TaskDistillation, TransferData

        settings, inputs = self.settings, self.inputs
        model = None if settings.model is None else inputs.model(settings.model)
        module = TaskDistillation(
            self.teachers,
            settings.task,
            settings.losses,
            model=model,
            student=settings.student,
            unfreeze_every=settings.unfreeze_every,
            optim=settings.optim,
            schedule=settings.schedule,
            seed=seed,
            dropout=settings.dropout,
            activation_checkpointing=settings.activation_checkpointing,
        )
        data = TransferData(
            settings.task,
            self.text.labelled,
            self.validation,
            unlabelled=self.text.sentences,
            unlabelled_batch_size=settings.unlabelled_batch_size,
            model=self.teachers.predictors[0].tokenizer if model is None else model,
            batch_size=settings.batch_size,
            max_length=settings.max_length,
            num_workers=settings.num_workers,
        )
        data.resolve(module, "fit")
        label, reads = f"distill-task seed {seed}", bool(module.losses.reads)  # else the last epoch is kept
        result = fit_labelled(label, module, data, settings, folder, keeps_best=reads)
        facts = {"teachers": ", ".join(str(path) for path in settings.teachers), "seed": seed}
        base = settings.model or settings.teachers[0]
        save_seed(folder, module, settings, "Distilled", facts, result, base)
        return result
