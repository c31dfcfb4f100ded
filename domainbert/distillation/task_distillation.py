"""Distillation of fine-tuned models on labelled and unlabelled text: LightningModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import model_name
from domainbert.distillation.config import LossConfig, Sizes
from domainbert.distillation.losses import Outputs, SoftTargetsLoss, TokenPositions
from domainbert.distillation.module import DistillationModule
from domainbert.distillation.module_config import TaskDistillationSettings
from domainbert.distillation.prediction_config import (
    LogitMSE,
    SoftTargets,
    check_cached_task,
    check_one_vocabulary,
    check_task_distillation,
)
from domainbert.distillation.student_config import StudentConfig
from domainbert.distillation.students import build_student, student_config
from domainbert.distillation.teachers import Teachers, load_teachers
from domainbert.distillation.transfer_data import TransferData
from domainbert.distillation.weighted import WeightedLosses, compute_outputs, mean_outputs, sizes_of
from domainbert.encoders.config import EncoderConfig, VocabularyFacts, max_length_error
from domainbert.encoders.crf import crf_of
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.torch_internals import SeededDraws
from domainbert.models.card import inherited_values
from domainbert.models.folder import open_model
from domainbert.tasks.capabilities import require_distillation_targets
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.data_checks import require_training_set
from domainbert.tasks.finetuning import FineTuning, path_to_record
from domainbert.tasks.initial_model import InitialModel, ModelSource, initial_model, task_of_settings
from domainbert.tasks.labelled_data import LabelledData
from domainbert.tasks.task import Task
from domainbert.training.hparams import read_argument
from domainbert.training.module import TrainedModule


class TaskDistillation(DistillationModule, FineTuning):
    """Distils fine-tuned models on labelled and unlabelled text of their task into a smaller one.

        data = TransferData(Ner(), "train.conll", "dev.conll", tokenizer="runs/tagger")
        module = TaskDistillation(["runs/tagger"], data.task, [SoftTargets(), HardTargets()])
        lightning.Trainer(max_epochs=5).fit(module, data)

    >>> from domainbert import Classification, SoftTargets, StudentConfig, TaskDistillation
    >>> student = StudentConfig(first_layers=1)
    >>> module = TaskDistillation(["classifier"], Classification(), [SoftTargets()], student=student)
    student: embeddings, layers 0, head of the teacher; the rest starts at random
    >>> module.task.labels
    ('civil', 'criminal')

    It validates, tests, predicts and saves like `FineTuning`. Teachers do not run during training if the batches
    contain their logits (see `TransferData`) and no loss compares layers.

    Args:
        teachers: fine-tuned model folders for the same labels; several are an ensemble, whose logits are averaged.
        task: see `FineTuning`; without labels, the labels of the first teacher.
        losses: losses of the student; their weighted sum is minimised.
        model: model folder that the student starts from; None derives the student from the first teacher.
        seed: see `FineTuning`.
        settings: all settings; or single settings by keyword, see `TaskDistillationSettings`.
    """

    kind = "Distilled"
    ensemble: Teachers | None

    def __init__(
        self,
        teachers: Sequence[str | Path] | Teachers,
        task: Task[Any, Any] | TaskConfig,
        losses: Sequence[LossConfig],
        *,
        model: ModelSource | None = None,
        seed: int = 1,
        settings: TaskDistillationSettings | None = None,
        **changes: Any,
    ) -> None:
        settings = TaskDistillationSettings.of(settings, **changes)
        student, max_length = settings.student, settings.max_length
        TrainedModule.__init__(self, settings.optim, settings.schedule, seed)
        self.unfreeze_every = settings.unfreeze_every
        paths = [Path(path) for path in (teachers.paths if isinstance(teachers, Teachers) else teachers)]
        is_saved = isinstance(model, Mapping)  # the plain values of a checkpoint, which needs no teachers
        self.set_loss_configs(losses, num_teachers=1 if is_saved else len(paths))
        task = task if isinstance(task, Task) else read_argument("task", TaskConfig, task)
        self.ensemble: Teachers | None = None
        if not is_saved:
            config = task.config if isinstance(task, Task) else task
            assert config is not None
            has_cache = isinstance(teachers, Teachers) and teachers.cache is not None
            check_task_distillation(config, self.loss_configs, student, model is not None, has_cache)
            task = task if isinstance(task, Task) else task_of_settings(task, open_model(paths[0]))
            self.ensemble = _open_teachers(teachers, task)
        with SeededDraws(seed):
            if model is None:
                assert self.ensemble is not None
                initial = _initial_student(self.ensemble, student, task, settings.dropout)
            else:
                initial = initial_model(model, task, dropout=settings.dropout)
            if self.ensemble is None:
                teacher_sizes = Sizes(*cast("Mapping[str, Any]", model)["teacher"])
            else:
                initial = replace(initial, teachers=tuple(map(model_name, paths)))
                teacher_sizes = sizes_of(self.ensemble.predictors[0].model.encoder)
                max_length = max_length or min(initial.config.max_length, self.ensemble.default_max_length)
                if max_length > initial.config.max_length:
                    raise max_length_error(max_length, initial.config.max_length, "the student")
            self._set_model(initial, max_length, settings.activation_checkpointing)
            # the sizes of the teacher matter only to losses on layers, which require a single teacher
            self._teacher_sizes = teacher_sizes
            weighted = WeightedLosses(self.loss_configs, sizes_of(self.model.encoder), teacher_sizes)
        self.set_losses(weighted)
        if self.ensemble is not None:
            check_losses(self, self.ensemble, has_model=model is not None)
            if isinstance(teachers, Teachers):  # otherwise the data may have a cache
                check_cache(self, teachers)
            self._set_running_teachers(self.ensemble)
        self.start_facts = {"teachers": ", ".join(self.initial.teachers), "seed": seed}
        self._record_arguments(
            teachers=paths,
            task=self.task.config,
            losses=self.loss_configs,
            model=None if model is None else path_to_record(model),
            seed=seed,
            **vars(replace(settings, max_length=max_length)),
        )

    def setup(self, stage: str) -> None:
        """Check the data, its cache and the strategy of the Trainer.

        Teachers that run in each step compute a few logits, so that a teacher that cannot predict is found at once.
        """
        if stage == "fit":  # the outputs of the teachers have the units of the task since they were loaded
            require_training_set(self, "TransferData")
            data = getattr(self.trainer, "datamodule", None)
            if isinstance(data, LabelledData) and not isinstance(data, TransferData):
                found = f"{type(data).__name__} with TaskDistillation"
                raise DomainbertError(where="trainer.fit", found=found, expected="TransferData")
            if self.ensemble is not None and isinstance(data, TransferData):
                self._use_cache_of(data, self.ensemble)
        super().setup(stage)

    def _use_cache_of(self, data: TransferData, ensemble: Teachers) -> None:
        """Check the cache of the data, and run the teachers in each step only if they have to."""
        if data.teachers is not None:
            ensemble = replace(ensemble, cache=data.teachers.cache, top_k=data.teachers.top_k)
        check_cache(self, ensemble)
        self._set_running_teachers(ensemble)
        if self.teachers:
            ensemble.check(data.examples("train"))

    def _set_running_teachers(self, ensemble: Teachers) -> None:
        runs = _run_in_each_step(ensemble, self.losses)
        self.set_teachers([teacher.model for teacher in ensemble.predictors] if runs else [])

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the student, so that `load_from_checkpoint` needs no teacher."""
        super().on_save_checkpoint(checkpoint)
        arguments = checkpoint[self.CHECKPOINT_HYPER_PARAMS_KEY]
        arguments["model"]["teacher"] = list(astuple(self._teacher_sizes))
        arguments["teachers"] = []

    def set_losses(self, losses: WeightedLosses) -> None:
        """Set the losses. `SoftTargets` gets the divergence of the task, and the unit (a token or a text) that has a
        softmax, over which the divergence is averaged."""
        super().set_losses(losses)
        for loss in losses.terms:
            if isinstance(loss, SoftTargetsLoss):
                distillation_targets = require_distillation_targets(self.task)
                loss.divergence, loss.unit = distillation_targets.divergence, distillation_targets.softmax_over

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the weighted loss of a micro-batch, scaled so that gradients are means over the global batch."""
        student = self._student_outputs(batch)
        teacher = self._mean_teacher_outputs(batch) if self.losses.needs_teacher else None
        sums = self.losses.sums(student, teacher, TokenPositions.of(batch))
        # the divisor of `HardTargets`, as of the task's own loss, may be the number of examples
        counts = {**batch, "num_targets": batch[self.task.loss_divisor]}
        means = self.losses.means(sums, counts)
        return self.record_loss(self.losses.total(means), means)

    def _student_outputs(self, batch: dict[str, Any]) -> Outputs:
        """Return the outputs of the student that the losses read; the others are None.

        `logits` are of words or texts, `example` is their example, and `hard_loss` is the loss of the task.
        """
        inputs, reads = batch, self.losses.reads
        if self.entries is not None:  # the embedding matrix has only the entries in use: replace ids by its rows
            inputs = {**batch, "input_ids": self.entries.rows_of(batch["input_ids"])}
        positions = batch["positions"] if reads else None  # None computes no logits
        outputs = compute_outputs(self.model, inputs, self.losses.attention_layers(side="student"), positions)
        if outputs.logits is None:
            return outputs
        hard_loss = logits = example = None
        if "hard" in reads:
            hard_loss = self.task.loss(outputs.logits, batch)
        if "predicted" in reads:  # a loss compares the logits with a teacher's: convert both in the same way
            targets = require_distillation_targets(self.task)
            logits = targets.teacher_logits(self.task, self.model.head, outputs.logits, batch)
            example = batch["output_example"]
        return replace(outputs, logits=logits, hard_loss=hard_loss, example=example)

    def _mean_teacher_outputs(self, batch: dict[str, Any]) -> Outputs:
        cached_logits = batch.get("teacher_logits")
        if cached_logits is not None and not self.losses.needs_hidden:
            return Outputs(hidden=[], projections={}, logits=cached_logits)  # no teacher has to run
        if self.ensemble is not None and not self.teachers:
            expected = "TransferData(..., teachers=...) with the same teachers"
            raise DomainbertError("the batches have no logits of the teachers", where="cache", expected=expected)
        self.check_teachers()
        computes_logits = "predicted" in self.losses.reads and cached_logits is None
        positions = batch["positions"] if computes_logits else None
        with torch.no_grad():
            outputs = mean_outputs([self._teacher_outputs(teacher, batch, positions) for teacher in self.teachers])
        return outputs if computes_logits else replace(outputs, logits=cached_logits)

    def _teacher_outputs(self, teacher: EncoderWithHead, batch: dict[str, Any], positions: Tensor | None) -> Outputs:
        """Return the outputs of a teacher for a batch. Their `logits` are of words or texts, log-marginals for a CRF;
        None if `positions` is None."""
        outputs = compute_outputs(teacher, batch, self.losses.attention_layers(side="teacher"), positions)
        if outputs.logits is None:
            return outputs
        logits = require_distillation_targets(self.task).teacher_logits(self.task, teacher.head, outputs.logits, batch)
        return replace(outputs, logits=logits)


def _open_teachers(teachers: Sequence[str | Path] | Teachers, task: Task[Any, Any]) -> Teachers:
    """Return the teachers. If they are paths, load them without a cache: they run in each step, unless the data has a
    cache."""
    if isinstance(teachers, Teachers):
        return teachers
    return load_teachers([Path(path) for path in teachers], task, "auto", cache=None, top_k=1)


def _run_in_each_step(teachers: Teachers, losses: WeightedLosses) -> bool:
    # otherwise no loss compares with a teacher, or only with logits in a cache
    return losses.needs_hidden or (losses.needs_teacher and teachers.cache is None)


def _initial_student(
    teachers: Teachers, settings: StudentConfig, task: Task[Any, Any], dropout: float | None
) -> InitialModel:
    teacher = teachers.predictors[0]
    config: EncoderConfig = student_config(settings, teacher.config)
    student, copied = build_student(
        config.with_dropout(dropout),  # only for the training: `config` is saved
        settings,
        teacher.model,
        head=task.head_config.completed(teacher.model.head_config),
        num_labels=len(task.labels),
        vocabulary=VocabularyFacts(teacher.model.encoder.input_embeddings.num_embeddings, teacher.tokenizer.pad_id),
    )
    print(f"student: {', '.join(copied) or 'nothing'} of the teacher; the rest starts at random")
    task.scaling.set_units(task, student.head)
    return InitialModel(student, config, teacher.tokenizer, task, card=inherited_values(teachers.paths[0]))


def check_losses(module: TaskDistillation, teachers: Teachers, has_model: bool) -> None:
    """Raise `DomainbertError` if the losses cannot compare student and teachers, with or without a cache.

    A student without a given model (`has_model`) has the vocabulary of the first teacher.
    """
    task = module.task
    assert task.config is not None
    # LogitMSE needs the logits of all labels
    if any(isinstance(loss, (SoftTargets, LogitMSE)) for loss in module.loss_configs):
        require_distillation_targets(task)
    heads = [module.model.head, *(teacher.model.head for teacher in teachers.predictors)]
    if any(crf_of(head) is not None for head in heads):  # its logits are log-marginals
        _check_no_logit_mse(module, "a CRF has no such logits")
    fingerprints = [module.tokenizer.fingerprint] if has_model else []
    fingerprints += [teacher.tokenizer.fingerprint for teacher in teachers.predictors]
    check_one_vocabulary(task.config, module.loss_configs, has_model, fingerprints)
    if module.losses.needs_hidden and _have_other_vocabulary(module, teachers):
        raise DomainbertError(
            where="losses",
            found="losses on layers, but the student has another vocabulary than its teacher",
            expected="losses on predictions only (SoftTargets, LogitMSE, HardTargets)",
        )


def check_cache(module: TaskDistillation, teachers: Teachers) -> None:
    """Raise `DomainbertError` if the losses do not fit the cache of the teachers, or need a cache."""
    task = module.task
    assert task.config is not None
    if teachers.cache is not None:
        check_cached_task(task.config)
        if teachers.drops_logits(task):
            _check_no_logit_mse(module, "the cache holds only the top_k highest")
    elif module.losses.needs_teacher and _have_other_vocabulary(module, teachers):
        raise DomainbertError(
            "missing",
            where="cache",
            expected="a folder, because a teacher with another vocabulary runs before the training",
        )
    longest = min(teacher.config.max_length for teacher in teachers.predictors)
    if _run_in_each_step(teachers, module.losses) and module.max_length > longest:
        hint = "for a longer window, set cache and use only losses on predictions"
        raise max_length_error(module.max_length, longest, "a teacher", hint)


def _check_no_logit_mse(module: TaskDistillation, reason: str) -> None:
    if any(isinstance(loss, LogitMSE) for loss in module.loss_configs):
        raise DomainbertError(
            f"LogitMSE compares the logits of all labels, but {reason}", where="losses", expected="SoftTargets"
        )


def _have_other_vocabulary(module: TaskDistillation, teachers: Teachers) -> bool:
    return any(teacher.tokenizer.fingerprint != module.tokenizer.fingerprint for teacher in teachers.predictors)
