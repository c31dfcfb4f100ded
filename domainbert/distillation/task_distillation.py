"""Distillation of fine-tuned models on labelled and unlabelled text: LightningModule and LightningDataModule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import BatchSize, check_value
from domainbert.base.paths import model_name
from domainbert.corpus.config import CorpusConfig
from domainbert.data.batches import GlobalOrder, Share
from domainbert.data.packing import Batch, Example
from domainbert.distillation.batches import DistillationBatches
from domainbert.distillation.config import LossConfig
from domainbert.distillation.losses import Outputs, SoftTargetsLoss, TokenPositions
from domainbert.distillation.module import DistillationModule
from domainbert.distillation.prediction_config import (
    LogitMSE,
    SoftTargets,
    check_one_vocabulary,
    check_task_distillation,
)
from domainbert.distillation.soft_labels import SoftLabels
from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.students import build_student, student_config
from domainbert.distillation.teachers import Teachers, TransferText, load_teachers
from domainbert.distillation.weighted import WeightedLosses, compute_outputs, mean_outputs
from domainbert.encoders.config import EncoderConfig, VocabularyFacts, max_length_problem
from domainbert.encoders.crf import crf_of
from domainbert.encoders.heads import EncoderWithHead
from domainbert.labelled.contents import Content
from domainbert.models.folder import ModelFolder
from domainbert.tasks.capabilities import require_distillation_targets
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.finetuning import FineTuning, InitialModel
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.task import Task
from domainbert.training.config import OptimConfig, Precision, ScheduleConfig
from domainbert.training.hparams import from_plain


class TransferData(LabelledData):
    """Labelled and unlabelled text for `TaskDistillation`.

        data = TransferData(Ner(), "train.conll", "dev.conll", unlabelled=CorpusConfig([Source("corpus.jsonl")]))

    >>> from domainbert import Ner, TransferData
    >>> TransferData(Ner(), "train.conll", unlabelled=["Prices rose."]).unlabelled_batch_size
    64

    Also accepts the arguments of `LabelledData`.

    Args:
        unlabelled: corpus of the domain, which is split into sentences; or the texts themselves.
        max_unlabelled: largest number of sentences to draw from the corpus at random; None takes all.
        unlabelled_batch_size: unlabelled sentences per optimizer step.

    Attributes:
        logits: logits of all examples by each teacher; None if the teachers run during training.
    """

    logits: Sequence[SoftLabels] | None = None

    def __init__(
        self,
        task: TaskConfig,
        train: Any = None,
        validation: Any = None,
        test: Any = None,
        predict: Any = None,
        *,
        unlabelled: CorpusConfig | Sequence[Content] | None = None,
        max_unlabelled: int | None = 20_000,
        unlabelled_batch_size: int = 64,
        model: Any = None,
        batch_size: int = 32,
        max_length: int | None = None,
        seed: int | None = None,
        num_workers: int | None = None,
    ) -> None:
        options = {"model": model, "batch_size": batch_size, "max_length": max_length, "seed": seed}
        super().__init__(task, train, validation, test, predict, **options, num_workers=num_workers)
        check_value("unlabelled_batch_size", unlabelled_batch_size, BatchSize)
        if isinstance(unlabelled, (str, Path)):
            found = f"{str(unlabelled)[:80]!r}; expected CorpusConfig([Source(...)]) or a list of texts"
            raise DomainbertError(f"unlabelled: found {found}")
        self.unlabelled, self.max_unlabelled = unlabelled, max_unlabelled
        self.unlabelled_batch_size = unlabelled_batch_size

    @cached_property
    def text(self) -> TransferText:
        """Items of the training set, and the unlabelled sentences."""
        train, unlabelled = self.labelled("train"), self.unlabelled
        if unlabelled is None or isinstance(unlabelled, CorpusConfig):
            return TransferText.read(train, unlabelled, self.max_unlabelled, self.resolved_task.word_splitting)
        return TransferText(train, unlabelled)

    def examples(self, name: str) -> list[Example]:
        """Return the examples of a data set (`train`, ...). In `train` the unlabelled examples come last."""
        if name == "train" and name not in self._examples:
            self._examples[name] = self.text.encode(self.resolved_task, self.tokenizer, self.window)
        return super().examples(name)

    @property
    def orders(self) -> list[GlobalOrder]:
        """Order of the labelled examples and, if there are unlabelled examples, their order."""
        num_unlabelled = len(self.text.sentences)
        if not num_unlabelled:
            return [self.order]
        return [self.order, GlobalOrder(num_unlabelled, self.unlabelled_batch_size, self.order.seed)]

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Return micro-batches of labelled and unlabelled text, with `teacher_logits` if they are in the cache."""
        return DistillationBatches(self.examples("train"), self.tokenizer, self.orders, share, steps, self.logits)


class TaskDistillation(DistillationModule, FineTuning):
    """Distils fine-tuned models on labelled and unlabelled text of their task into a smaller one.

        data = TransferData(Ner(), "train.conll", "dev.conll")
        module = TaskDistillation(["runs/tagger"], data.task, [SoftTargets(), HardTargets()])
        lightning.Trainer(max_epochs=5).fit(module, data)

    >>> from domainbert import Ner, SoftTargets, TaskDistillation
    >>> TaskDistillation(["model"], Ner(), [SoftTargets()], cache="soft-labels").top_k
    64

    It validates, tests, predicts and saves like `FineTuning`. Teachers do not run during training if the batches
    contain their logits and no loss compares layers.

    Args:
        teachers: fine-tuned model folders for the same labels; several are an ensemble, whose logits are averaged.
        task: the task, such as `Ner()`.
        losses: losses of the student; their weighted sum is minimised.
        model: model folder that the student starts from; None derives the student from the first teacher.
        student: architecture of a student derived from the first teacher, and the weights that it copies.
        cache: folder for teacher logits, so that each teacher runs once; None runs the teachers in every step.
        top_k: number of logits per word or text that the cache keeps.
        unfreeze_every: optimizer steps after which the next lower layer is unfrozen; 0 freezes nothing.
        precision: precision of teachers that run before the training to fill the cache.
        optim, schedule, seed, dropout, activation_checkpointing: see `FineTuning`.
    """

    data_class = "TransferData"
    kind = "Distilled"

    def __init__(
        self,
        teachers: Sequence[str | Path] | Teachers,
        task: TaskConfig,
        losses: Sequence[LossConfig],
        *,
        model: str | Path | ModelFolder | None = None,
        student: StudentConfig = StudentConfig(),
        cache: str | Path | None = None,
        top_k: int = 64,
        unfreeze_every: int = 0,
        precision: Precision = "auto",
        optim: OptimConfig = OptimConfig(lr=1e-4, head_lr=1e-3),
        schedule: ScheduleConfig = ScheduleConfig(warmup_fraction=0.1),
        seed: int = 1,
        dropout: float | None = None,
        activation_checkpointing: bool = False,
    ) -> None:
        self.given_teachers = teachers
        paths = [Path(path) for path in (teachers.paths if isinstance(teachers, Teachers) else teachers)]
        self.set_loss_configs(losses, len(paths))
        # without an own model, the student is built later from the first teacher
        self.own_model, self.student = model, cast(StudentConfig, from_plain(StudentConfig, student))
        FineTuning.__init__(
            self,
            paths[0] if model is None else model,
            task,
            optim=optim,
            schedule=schedule,
            seed=seed,
            dropout=dropout,
            activation_checkpointing=activation_checkpointing,
        )
        check_task_distillation(self.task_config, self.loss_configs, self.student, model is not None, cache is not None)
        self.paths, self.cache, self.top_k = paths, None if cache is None else Path(cache), top_k
        self.unfreeze_every, self.precision = unfreeze_every, precision
        recorded_model = None if model is None else self.hparams["model"]  # `FineTuning` recorded the first teacher
        self.record_arguments(
            teachers=paths,
            losses=self.loss_configs,
            model=recorded_model,
            student=self.student,
            cache=self.cache,
            top_k=top_k,
            unfreeze_every=unfreeze_every,
            precision=precision,
        )

    def ensemble(self, task: Task[Any, Any]) -> Teachers:
        """Return the teachers, loaded once; raise `DomainbertError` if a teacher has another task or other labels."""
        if not isinstance(self.given_teachers, Teachers):
            precision = cast(Precision, self.precision)
            self.given_teachers = load_teachers(self.paths, task, precision, self.cache, self.top_k)
        return self.given_teachers

    def default_window(self, task: Task[Any, Any]) -> int:
        """Return the default window in tokens: the positions of the student, but at most the length with which its
        teachers were trained."""
        teachers = self.ensemble(task)
        config = self.open().config if self.own_model is not None else self._student_config(teachers)
        return min(config.max_length, teachers.default_max_length)

    def card_facts(self) -> dict[str, object]:
        """Return rows of a model card on the start of the training."""
        return {"teachers": ", ".join(map(str, self.paths)), "seed": self.seed}

    def _student_config(self, teachers: Teachers) -> EncoderConfig:
        return student_config(self.student, teachers.predictors[0].config)

    def initial_model(self, task: Task[Any, Any]) -> InitialModel:
        """Return the student at the start: the given `model`, or a student derived from the first teacher if the model
        is None."""
        teachers = self.ensemble(task)
        names = tuple(map(model_name, teachers.paths))
        if self.own_model is not None:
            return replace(super().initial_model(task), teachers=names)
        teacher = teachers.predictors[0]
        config, tokenizer = self._student_config(teachers), teacher.tokenizer
        student, copied = build_student(
            config.with_dropout(self.dropout),  # only for the training: `config` is saved
            self.student,
            teacher.model,
            head=task.head_config,
            num_labels=len(task.labels),
            vocabulary=VocabularyFacts(teacher.model.encoder.input_embeddings.num_embeddings, tokenizer.pad_id),
        )
        print(f"student: {', '.join(copied) or 'nothing'} of the teacher; the rest starts at random")
        return InitialModel(student, config, tokenizer, names)

    def set_initial_model(self, initial: InitialModel, task: Task[Any, Any], max_length: int) -> None:
        """Set the student to train, and build the losses that compare the student with its teachers.

        Raise `DomainbertError` if `max_length` exceeds the positions of the student, or if the losses cannot compare
        student and teachers.
        """
        if max_length > initial.config.max_length:
            raise DomainbertError(max_length_problem(max_length, initial.config.max_length, "the student"))
        super().set_initial_model(initial, task, max_length)
        teachers = self.ensemble(task)
        # the sizes of the teacher matter only to losses on layers, which require a single teacher
        teacher_encoder = teachers.predictors[0].model.encoder
        weighted = WeightedLosses(self.loss_configs, initial.model.encoder, teacher_encoder)
        check_losses(weighted, self, initial, teachers, max_length)
        self.set_losses(weighted)

    def set_losses(self, losses: WeightedLosses) -> None:
        """Set the losses. `SoftTargets` gets the divergence of the task, and the unit (a token or a text) that has a
        softmax, over which the divergence is averaged."""
        super().set_losses(losses)
        for loss in losses.terms:
            if isinstance(loss, SoftTargetsLoss):
                distillation_targets = require_distillation_targets(self.task)
                loss.divergence, loss.unit = distillation_targets.divergence, distillation_targets.softmax_over

    def resolve(self, data: LabelledData, stage: str) -> None:  # type: ignore[override]
        """Build the models like `FineTuning`. Before a training, compute the teacher logits if there is a cache for
        them; also set the teachers if they run in each step."""
        if not self.is_built:
            self.ensemble(data.resolved_task)  # loads the teachers before random weights are drawn
        super().resolve(data, stage)
        if stage != "fit":
            return
        if not isinstance(data, TransferData):
            name = type(data).__name__
            raise DomainbertError(f"trainer.fit: found {name} with TaskDistillation; expected TransferData")
        teachers, examples = self.ensemble(self.task), data.examples("train")
        in_cache = teachers.cache is not None and "predicted" in self.losses.reads
        data.logits = None  # another module may have set the logits of its teachers
        if in_cache:
            sizes = [example.num_outputs for example in examples]
            data.logits = teachers.soft_labels(data.text, self.task, sizes)
        runs_teachers = self.losses.needs_hidden or (self.losses.needs_teacher and not in_cache)  # in each step
        if runs_teachers:
            self.set_teachers([teacher.model for teacher in teachers.check(examples).predictors])

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the weighted loss of a micro-batch, scaled so that gradients are means over the global batch."""
        positions = batch["positions"] if self.losses.reads else None  # None: no loss reads logits
        # the student may hold embeddings only for the ids in the data; teachers hold all
        rows = self.row_of_entry
        student_batch = batch if rows is None else batch | {"input_ids": rows[batch["input_ids"]]}
        layers = self.losses.attention_layers(side="student")
        student = compute_outputs(self.model, student_batch, layers, positions)
        student = self._task_outputs(student, batch)
        teacher = self._mean_teacher_outputs(batch) if self.losses.needs_teacher else None
        sums = self.losses.sums(student, teacher, TokenPositions.of(batch))
        # the task may divide its loss by the number of examples instead of the number of targets
        means = self.losses.means(sums, batch | {"num_targets": batch[self.task.loss_divisor]})
        return self.record_loss(self.losses.total(means), means)

    def _task_outputs(self, student: Outputs, batch: dict[str, Any]) -> Outputs:
        """Return the outputs of the student in the form that the losses read.

        `hard_loss` is the loss of the task, if a loss reads it. `logits` become logits of words or texts instead of
        positions, or None if no loss compares them with a teacher. Outputs without logits are returned unchanged.
        """
        if student.logits is None:
            return student
        hard_loss = self.task.loss(student.logits, batch) if "hard" in self.losses.reads else None
        if "predicted" not in self.losses.reads:
            return replace(student, logits=None, hard_loss=hard_loss)
        targets = require_distillation_targets(self.task)
        logits = targets.teacher_logits(self.task, self.model.head, student.logits, batch)  # for students too
        return replace(student, logits=logits, hard_loss=hard_loss, example=batch["output_example"])

    def _mean_teacher_outputs(self, batch: dict[str, Any]) -> Outputs:
        """Return the outputs of the ensemble for a batch, with logits from the cache if the batch has them.

        The teachers run only if their logits are not in the batch, or if a loss reads their layers.
        """
        cached_logits = batch.get("teacher_logits")
        if cached_logits is not None and not self.losses.needs_hidden:
            return Outputs(hidden=[], projections={}, logits=cached_logits)
        needs_logits = "predicted" in self.losses.reads and cached_logits is None
        positions = batch["positions"] if needs_logits else None
        with torch.no_grad():
            outputs = mean_outputs([self._teacher_outputs(teacher, batch, positions) for teacher in self.teachers])
        return replace(outputs, logits=cached_logits) if outputs.logits is None else outputs

    def _teacher_outputs(self, teacher: EncoderWithHead, batch: dict[str, Any], positions: Tensor | None) -> Outputs:
        """Run one teacher on a batch, and return its outputs.

        The logits are of words or texts, or the log-marginals of a CRF; None if `positions` is None.
        """
        outputs = compute_outputs(teacher, batch, self.losses.attention_layers(side="teacher"), positions)
        if outputs.logits is None:
            return outputs
        logits = require_distillation_targets(self.task).teacher_logits(self.task, teacher.head, outputs.logits, batch)
        return replace(outputs, logits=logits)


def check_losses(
    weighted: WeightedLosses, module: TaskDistillation, start: InitialModel, teachers: Teachers, window: int
) -> None:
    """Raise `DomainbertError` if the losses cannot compare student and teachers.

    `start` is the student before the training, and `window` the length of a training window in tokens.
    """
    # logits of all labels
    task, has_cache = module.task, teachers.cache is not None
    heads = [start.model.head, *(teacher.model.head for teacher in teachers.predictors)]
    have_crf = any(crf_of(head) is not None for head in heads)  # the logits of a CRF are log-marginals
    drops_logits = has_cache and teachers.drops_logits(task)
    if any(isinstance(loss, (SoftTargets, LogitMSE)) for loss in module.loss_configs):
        require_distillation_targets(task)
    if any(isinstance(loss, LogitMSE) for loss in module.loss_configs) and (have_crf or drops_logits):
        reason = "a CRF has no such logits" if have_crf else "the cache holds only the top_k highest"
        raise DomainbertError(f"losses: LogitMSE compares the logits of all labels, but {reason}; expected SoftTargets")

    # vocabularies
    has_model = module.own_model is not None  # a student without a given model has the vocabulary of the first teacher
    fingerprints = [start.tokenizer.fingerprint] if has_model else []
    fingerprints += [teacher.tokenizer.fingerprint for teacher in teachers.predictors]
    check_one_vocabulary(module.task_config, module.loss_configs, has_model, fingerprints)
    if any(fingerprint != start.tokenizer.fingerprint for fingerprint in fingerprints):
        if weighted.needs_hidden:
            raise DomainbertError(
                "losses: found losses on layers, but the student has another vocabulary than its teacher; "
                "expected losses on predictions only (SoftTargets, LogitMSE, HardTargets)"
            )
        if weighted.needs_teacher and not has_cache:
            raise DomainbertError(
                "cache: missing; expected a folder, because a teacher with another vocabulary runs before the training"
            )

    # window
    runs_teachers = weighted.needs_hidden or (weighted.needs_teacher and not has_cache)  # in each training step
    longest = min(teacher.config.max_length for teacher in teachers.predictors)
    if runs_teachers and window > longest:
        problem = max_length_problem(window, longest, "a teacher")
        raise DomainbertError(f"{problem}; for a longer window, set cache and use only losses on predictions")
