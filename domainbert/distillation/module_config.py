"""Settings of the modules and data modules of distillation. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from domainbert.base.fields import BatchSize, Count, Length, PositiveInt
from domainbert.distillation.student_config import StudentConfig
from domainbert.tasks.finetuning_config import LabelledDataSettings, LabelledModuleSettings
from domainbert.training.config import ModuleSettings


@dataclass(frozen=True, kw_only=True)
class DistillationSettings(ModuleSettings):
    """Settings of `Distillation`, and of the stage `distill`."""

    student: StudentConfig = StudentConfig()
    """Architecture of a student derived from the first teacher, and the weights that it copies."""

    unfreeze_every: Count = 0
    """Optimiser steps after which one more layer is trained, from the head down to the embeddings; 0 trains all layers
    from the start."""


@dataclass(frozen=True, kw_only=True)
class TransferDataSettings(LabelledDataSettings):
    """Settings of `TransferData`."""

    max_unlabelled: PositiveInt | None = 20_000
    """Largest number of sentences to draw from a corpus `unlabelled` at random, and of texts in a list; None takes
    all."""

    unlabelled_batch_size: BatchSize = 64
    """Number of unlabelled sentences in an optimiser step, in addition to `batch_size`."""

    cache: str | None = None
    """Folder for teacher logits in half precision, by teacher and text; created if it does not exist. Each teacher then
    runs once for all epochs, seeds, ensembles and runs, on windows of the length that it was trained with. None runs
    the teachers in every step."""

    top_k: PositiveInt = 64
    """Number of logits per word or text in the cache; the other labels share the remaining probability equally."""


@dataclass(frozen=True, kw_only=True)
class TaskDistillationSettings(LabelledModuleSettings, DistillationSettings):
    """Settings of `TaskDistillation`, and of the stage `distill-task`."""

    max_length: Length | None = None
    """Tokens of a window, including [CLS] and [SEP]; longer inputs are split into overlapping windows. None takes the
    positions of the student, but at most the length with which its teachers were trained."""
