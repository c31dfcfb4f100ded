"""Modules whose models are made by a test, and data whose batches are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from domainbert.data.batches import Share
from domainbert.distillation.corpus_distillation import Distillation
from domainbert.distillation.task_distillation import TaskDistillation
from domainbert.distillation.weighted import WeightedLosses
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.heads import EncoderWithHead
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objective import BuiltModel, Objective, ValidationText
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM
from domainbert.pretraining.rows_module import RowsModule
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.task import Task
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.data_module import TrainingData
from domainbert.training.module import TrainedModule

NOWHERE: Any = None


class ReadyBatches(TrainingData):
    """Ready-made batches: of `num_steps` optimizer steps, from a share and a range of steps; and validation sets."""

    def __init__(
        self,
        train: Callable[[Share, range], Dataset[Any]],
        validations: Sequence[Callable[[Share], Dataset[Any]]],
        num_steps: int,
        num_workers: int | None = 0,
        batch_size: int = 8,
    ) -> None:
        super().__init__(batch_size, num_workers)
        self.train, self.validations, self.steps_per_epoch = train, validations, num_steps

    def resolve(self, module: TrainedModule | None, stage: str) -> None:
        """All is there."""

    def train_batches(self, share: Share, steps: range) -> Dataset[Any]:
        """See `TrainingData`."""
        return self.train(share, steps)

    def validation_batches(self, share: Share) -> list[Dataset[Any]]:
        """See `TrainingData`."""
        return [validation(share) for validation in self.validations]


def rank_of_trainer(device: str = "cpu", **values: Any) -> Any:
    """A Trainer as a data module sees it, before the first micro-batch of a run."""
    progress = SimpleNamespace(batch_progress=SimpleNamespace(current=SimpleNamespace(ready=0)))
    usual = {"global_step": 0, "global_rank": 0, "world_size": 1, "accumulate_grad_batches": 1, "overfit_batches": 0}
    usual |= {"strategy": SimpleNamespace(root_device=torch.device(device))}
    return SimpleNamespace(**usual | {"fit_loop": SimpleNamespace(epoch_loop=progress)} | values)


def pretraining(
    objective: Objective[Any],
    models: Mapping[str, EncoderWithHead],
    optim: OptimConfig,
    schedule: ScheduleConfig,
    texts: Sequence[ValidationText],
    seed: int = 0,
) -> Pretraining:
    """Pretraining of some models."""
    module = Pretraining(BertConfig(), None, MaskedLM(), optim=optim, schedule=schedule, seed=seed)
    module.set_objective(objective, {name: BuiltModel(model, NOWHERE, "") for name, model in models.items()})
    module.validate_on(texts)
    return module


def fine_tuning(
    model: EncoderWithHead,
    task: Task[Any, Any],
    optim: OptimConfig = OptimConfig(),
    schedule: ScheduleConfig = ScheduleConfig(),
    validation: Sequence[Any] = (),
    seed: int = 0,
    row: Tensor | None = None,
    **settings: Any,
) -> FineTuning:
    """Fine-tuning of a model with a head for a task."""
    from domainbert.tasks.ner.config import Ner  # this module serves tests of other tasks

    module = FineTuning("none", Ner(), optim=optim, schedule=schedule, seed=seed, **settings)
    module.set_model(model, task)
    module.validate_on(validation)
    module.row_of_entry, module.measures_loss = row, False
    return module


def task_distillation(
    model: EncoderWithHead, teachers: Sequence[EncoderWithHead], losses: WeightedLosses, task: Task[Any, Any]
) -> TaskDistillation:
    """Distillation of some models with heads for a task."""
    from domainbert.tasks.ner.config import Ner

    module = TaskDistillation(["none"], Ner(), [], optim=OptimConfig(), schedule=ScheduleConfig())
    module.set_model(model, task)
    module.set_losses(losses)
    module.set_teachers(teachers)
    return module


class CorpusDistillation(Distillation):
    """Distillation of some masked language models."""

    def __init__(
        self,
        model: EncoderWithHead,
        teachers: Sequence[EncoderWithHead],
        losses: WeightedLosses,
        optim: OptimConfig = OptimConfig(),
        schedule: ScheduleConfig = ScheduleConfig(),
        seed: int = 0,
        unfreeze_every: int = 0,
    ) -> None:
        RowsModule.__init__(self, None, MaskedLM(), optim, schedule, seed)
        self.unfreeze_every = unfreeze_every
        self.begin(model, teachers, losses)
