"""Distillation of fine-tuned models on labelled and unlabelled text, as a LightningModule with its data."""

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
from domainbert.base.paths import model_name
from domainbert.corpus.config import CorpusConfig
from domainbert.data.examples import Example
from domainbert.data.order import GlobalOrder
from domainbert.data.types import Batch, Share
from domainbert.distillation.batches import DistillationBatches
from domainbert.distillation.config import LossConfig, check_ensemble
from domainbert.distillation.distilling import Distilling
from domainbert.distillation.losses import Outputs, Places, SoftTargetsLoss
from domainbert.distillation.prediction_config import LogitMSE, SoftTargets, need_one_vocabulary
from domainbert.distillation.soft_labels import MeanLabels
from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.students import build_student, student_config
from domainbert.distillation.teachers import Teachers, TransferText, load_teachers
from domainbert.distillation.weighted import WeightedLosses, mean_outputs, observe
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.crf import crf_of
from domainbert.encoders.heads import EncoderWithHead
from domainbert.labelled.contents import Content
from domainbert.models.folder import ModelFolder
from domainbert.tasks.capabilities import need_teaching
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.finetuning import FineTuning, Start
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.task import Task
from domainbert.training.config import Precision
from domainbert.training.hparams import from_plain
from domainbert.training.optim_config import OptimConfig, ScheduleConfig


class TransferData(LabelledData):
    """Labelled text, as of `LabelledData`, and text without labels, for `TaskDistillation`.

        data = TransferData(Ner(), "train.conll", "dev.conll", unlabelled=CorpusConfig([Source("corpus.jsonl")]))

    >>> from domainbert import Ner, TransferData
    >>> TransferData(Ner(), "train.conll", unlabelled=["Prices rose."]).unlabelled_batch_size
    64

    Also accepts the arguments of `LabelledData`.

    Args:
        unlabelled: text of the domain, cut into sentences; or the contents themselves.
        max_unlabelled: sentences of it that are taken, drawn at random; None takes all.
        unlabelled_batch_size: unlabelled sentences of an optimizer step.

    Attributes:
        logits: teacher logits of each example; None if the teachers run during training.
    """

    logits: MeanLabels | None = None

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
        how = {"model": model, "batch_size": batch_size, "max_length": max_length, "seed": seed}
        super().__init__(task, train, validation, test, predict, **how, num_workers=num_workers)
        self.unlabelled, self.max_unlabelled = unlabelled, max_unlabelled
        self.unlabelled_batch_size = unlabelled_batch_size

    @cached_property
    def text(self) -> TransferText:
        """Training set and unlabelled sentences."""
        train, given = self.labelled("train"), self.unlabelled
        if given is None or isinstance(given, CorpusConfig):
            return TransferText.of(train, given, self.max_unlabelled, self.resolved_task.word_splitting)
        return TransferText(train, given)

    def examples(self, name: str) -> list[Example]:
        """Examples of a set; the training set is followed by the unlabelled examples."""
        if name == "train" and name not in self._examples:
            self._examples[name] = self.text.encode(self.resolved_task, self.tokenizer, self.window)
        return super().examples(name)

    @cached_property
    def orders(self) -> list[GlobalOrder]:
        """The labelled and, if there are any, the unlabelled examples of each step."""
        text = self.text.sentences
        seed = self.seed or 0
        return [self.order, *([GlobalOrder(len(text), self.unlabelled_batch_size, seed)] if text else [])]

    def train_batches(self, share: Share, steps: range) -> Dataset[Batch]:
        """Micro-batches of labelled and unlabelled text, with `teacher_logits` if they were computed before."""
        return DistillationBatches(self.examples("train"), self.tokenizer, self.orders, share, steps, self.logits)


class TaskDistillation(Distilling, FineTuning):
    """Distils fine-tuned models on labelled and unlabelled text of their task into a smaller one.

        data = TransferData(Ner(), "train.conll", "dev.conll")
        module = TaskDistillation(["runs/tagger"], data.task, [SoftTargets(), HardTargets()])
        lightning.Trainer(max_epochs=5).fit(module, data)

    >>> from domainbert import Ner, SoftTargets, TaskDistillation
    >>> TaskDistillation(["model"], Ner(), [SoftTargets()], cache="soft-labels").top_k
    64

    It validates, tests, predicts and saves as `FineTuning`. Teachers do not run if the batches contain
    these, and have the embeddings of all entries.

    Args:
        teachers: fine-tuned model folders for the same labels; several are an ensemble, whose logits are averaged.
        task: the task, such as `Ner()`.
        losses: of the student; their weighted sum is minimised.
        model: model folder that the student starts from; None makes the student of the first teacher.
        student: architecture of a student made from the first teacher, and the weights that it copies.
        cache: folder for teacher logits, so that each teacher runs once; None runs the teachers in every step.
        top_k: logits of each word or text that the cache keeps.
        unfreeze_every: optimizer steps after which the next lower layer is unfrozen; 0 freezes nothing.
        precision: precision of teachers that run before the training.
        optim, schedule, seed, dropout, activation_checkpointing: as of `FineTuning`.
    """

    data_class = "TransferData"

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
        paths = [Path(one) for one in (teachers.paths if isinstance(teachers, Teachers) else teachers)]
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
        self.paths, self.cache, self.top_k = paths, None if cache is None else Path(cache), top_k
        self.loss_configs = [cast(LossConfig, from_plain(LossConfig, one)) for one in losses]
        check_ensemble(len(paths), self.loss_configs)
        self.unfreeze_every, self.precision = unfreeze_every, precision
        self.note_arguments(
            teachers=paths,
            losses=self.loss_configs,
            model=None if model is None else self.hparams["model"],
            student=self.student,
            cache=self.cache,
            top_k=top_k,
            unfreeze_every=unfreeze_every,
            precision=precision,
        )

    def ensemble(self, task: Task[Any, Any]) -> Teachers:
        """The teachers, loaded once; `DomainbertError` if one is for another task or has other labels."""
        if not isinstance(self.given_teachers, Teachers):
            how = (cast(Precision, self.precision), self.cache, self.top_k)
            self.given_teachers = load_teachers(self.paths, task, *how)
        return self.given_teachers

    def usual_window(self, task: Task[Any, Any]) -> int:
        """Tokens of a window: the positions of the student, at most the length that its teachers were trained on."""
        teachers = self.ensemble(task)
        config = self.open().config if self.own_model is not None else self._student_config(teachers)
        return min(config.max_length, teachers.usual_length)

    def _student_config(self, teachers: Teachers) -> Any:
        return student_config(self.student, teachers.predictors[0].config)

    def start(self, task: Task[Any, Any]) -> Start:
        """Return the student at the start: `model`, or a student of the first teacher if `model` is None."""
        teachers = self.ensemble(task)
        names = tuple(map(model_name, teachers.paths))
        if self.own_model is not None:
            return replace(super().start(task), teachers=names)
        teacher = teachers.predictors[0]
        config, tokenizer = self._student_config(teachers), teacher.tokenizer
        vocabulary = VocabularyFacts(teacher.model.encoder.input_embeddings.num_embeddings, tokenizer.pad_id)
        outputs = task.head_config, len(task.labels), vocabulary
        model, taken = build_student(config.as_trained(self.dropout), self.student, teacher.model, *outputs)
        print(f"student: {', '.join(taken) or 'nothing'} of the teacher; the rest starts at random")
        return Start(model, config, tokenizer, names)

    def begin(self, start: Start, task: Task[Any, Any], max_length: int) -> None:
        """Set the student to train; `DomainbertError` if the losses cannot compare student and teachers."""
        if max_length > start.config.max_length:
            found = f"the student has positions for {start.config.max_length} tokens"
            raise DomainbertError(f"max_length: {max_length}; {found}")
        super().begin(start, task, max_length)
        teachers = self.ensemble(task)
        weighted = WeightedLosses(self.loss_configs, start.model.encoder, teachers.predictors[0].model.encoder)
        check_losses(weighted, self, start, teachers, max_length)
        self.compare(weighted)

    def compare(self, losses: WeightedLosses, teachers: Sequence[EncoderWithHead] = ()) -> None:
        """Set losses and teachers; the `teaching` of the task compares the outputs."""
        self.learn_from(teachers, losses, self.unfreeze_every)
        for loss in losses.terms:
            if isinstance(loss, SoftTargetsLoss):
                teaching = need_teaching(self.task)
                loss.divergence, loss.unit = teaching.divergence, teaching.softmax_over

    def resolve(self, data: LabelledData, stage: str) -> None:  # type: ignore[override]
        """Build the models as `FineTuning`; with a cache, compute the teacher logits before a training."""
        if not self.is_built:
            self.ensemble(data.resolved_task)  # before new weights are drawn
        super().resolve(data, stage)
        if stage != "fit":
            return
        if not isinstance(data, TransferData):
            found = type(data).__name__
            raise DomainbertError(f"trainer.fit: found {found} with TaskDistillation; expected TransferData")
        teachers, examples = self.ensemble(self.task), data.examples("train")
        before = teachers.cache is not None and "predicted" in self.losses.reads
        if before:
            sizes = [example.num_outputs for example in examples]
            data.logits = teachers.soft_labels(data.text, self.task, sizes)
        if self.losses.needs_hidden or (self.losses.needs_teacher and not before):
            self.take_teachers([teacher.model for teacher in teachers.check(examples).predictors])

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the weighted loss of a micro-batch, scaled so that gradients are means over the global batch."""
        reads = self.losses.reads
        own = batch if self.row is None else batch | {"input_ids": self.row[batch["input_ids"]]}
        student = observe(self.model, own, self.losses.layers(0), batch["positions"] if reads else None)
        student = self._outputs(student, batch)
        teacher = self._ask(batch) if self.losses.needs_teacher else None
        sums = self.losses.sums(student, teacher, Places.of(batch))
        means = self.losses.means(sums, batch | {"num_targets": batch[self.task.counted]})
        return self.note_loss(self.losses.total(means), means)

    def _outputs(self, student: Outputs, batch: dict[str, Any]) -> Outputs:
        """Replace logits at positions by logits of words or texts, and add the task's own loss."""
        if student.logits is None:
            return student
        hard = self.task.loss(student.logits, batch) if "hard" in self.losses.reads else None
        if "predicted" not in self.losses.reads:
            return replace(student, logits=None, hard_loss=hard)
        logits = need_teaching(self.task).teacher_logits(self.task, self.model.head, student.logits, batch)
        return replace(student, logits=logits, hard_loss=hard, example=batch["output_example"])

    def _ask(self, batch: dict[str, Any]) -> Outputs:
        given = batch.get("teacher_logits")
        if given is not None and not self.losses.needs_hidden:
            return Outputs([], {}, given)
        positions = batch["positions"] if "predicted" in self.losses.reads and given is None else None
        with torch.no_grad():
            teacher = mean_outputs([self._teacher_outputs(one, batch, positions) for one in self.teachers])
        return replace(teacher, logits=given) if teacher.logits is None else teacher

    def _teacher_outputs(self, teacher: EncoderWithHead, batch: dict[str, Any], positions: Tensor | None) -> Outputs:
        """Run one teacher on a batch; return logits of words or texts, or the log-marginals of a CRF."""
        outputs = observe(teacher, batch, self.losses.layers(1), positions)
        if outputs.logits is None:
            return outputs
        logits = need_teaching(self.task).teacher_logits(self.task, teacher.head, outputs.logits, batch)
        return replace(outputs, logits=logits)


def check_losses(
    weighted: WeightedLosses, module: TaskDistillation, start: Start, teachers: Teachers, window: int
) -> None:
    """Raise `DomainbertError` where the losses cannot compare student and teachers."""
    task, cached = module.task, teachers.cache is not None
    have_crf = teachers.have_crf or crf_of(start.model.head) is not None
    some_labels = cached and teachers.drops_logits(task)
    if any(isinstance(loss, (SoftTargets, LogitMSE)) for loss in module.loss_configs):
        need_teaching(task)
    if any(isinstance(loss, LogitMSE) for loss in module.loss_configs) and (have_crf or some_labels):
        found = "those of a CRF are log-probabilities" if have_crf else "the cache holds top_k of them"
        raise DomainbertError(f"losses: LogitMSE compares logits of all labels, but {found}; expected SoftTargets")
    own = [] if module.own_model is None else [start.tokenizer.fingerprint]
    fingerprints = [*own, *(teacher.tokenizer.fingerprint for teacher in teachers.predictors)]
    need_one_vocabulary(module.task_config, module.loss_configs, module.own_model is not None, fingerprints)
    if not teachers.read_as(start.tokenizer):
        if weighted.needs_hidden:
            raise DomainbertError(
                "losses: some compare hidden states or attention, but the student has another vocabulary than its "
                "teacher; expected losses on predictions only (SoftTargets, LogitMSE, HardTargets)"
            )
        if weighted.needs_teacher and not cached:
            raise DomainbertError("cache: missing; a teacher with another vocabulary is asked before the training")
    if (weighted.needs_hidden or (weighted.needs_teacher and not cached)) and window > teachers.max_length:
        raise DomainbertError(
            f"max_length: {window}; a teacher has positions for {teachers.max_length} tokens; expected no more, "
            "or a cache and losses on predictions only"
        )
