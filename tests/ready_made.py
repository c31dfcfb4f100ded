"""Modules whose models are made by a test, and data whose batches are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import Dataset

from domainbert.data.batches import Share
from domainbert.distillation.corpus_distillation import Distillation
from domainbert.distillation.task_distillation import TaskDistillation
from domainbert.distillation.weighted import WeightedLosses
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.heads import EncoderWithHead
from domainbert.pretraining.data_module import texts_of_loaders
from domainbert.pretraining.module import Pretraining
from domainbert.pretraining.objective import BuiltModel, Objective, RowSources, ValidationText
from domainbert.tasks.finetuning import FineTuning
from domainbert.tasks.initial_model import InitialModel
from domainbert.tasks.task import Task
from domainbert.training.config import OptimConfig, ScheduleConfig
from domainbert.training.data_module import TrainingData
from domainbert.training.module import TrainedModule

NOWHERE: Any = None


def no_tokenizer() -> Any:
    """Attributes of a tokenizer that a training reads."""
    return SimpleNamespace(model_max_length=None, fingerprint=None)


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
        self.train, self.validations, self._num_steps = train, validations, num_steps

    @property
    def num_items(self) -> int:
        """One epoch is the whole training."""
        return self._num_steps * self.batch_size

    def setup(self, stage: str) -> None:
        """All is there."""

    def train_batches(self, share: Share, steps: range) -> Dataset[Any]:
        """See `TrainingData`."""
        return self.train(share, steps)

    def validation_batches(self, share: Share) -> list[Dataset[Any]]:
        """See `TrainingData`."""
        return [validation(share) for validation in self.validations]


def rank_of_trainer(device: str = "cpu", fetched: int = 0, **values: Any) -> Any:
    """A Trainer as a data module sees it, after some micro-batches of an epoch."""
    progress = SimpleNamespace(batch_progress=SimpleNamespace(current=SimpleNamespace(ready=fetched)))
    usual = {"global_step": 0, "global_rank": 0, "world_size": 1, "accumulate_grad_batches": 1, "overfit_batches": 0}
    usual |= {"strategy": SimpleNamespace(root_device=torch.device(device))}
    return SimpleNamespace(**usual | {"fit_loop": SimpleNamespace(epoch_loop=progress)} | values)


class ReadyPretraining(Pretraining):
    """Pretraining of some models, with the texts of its validation loaders."""

    def __init__(
        self,
        objective: Objective[Any],
        models: Mapping[str, EncoderWithHead],
        optim: OptimConfig,
        schedule: ScheduleConfig,
        texts: Sequence[ValidationText],
        seed: int = 0,
    ) -> None:
        TrainedModule.__init__(self, optim, schedule, seed)
        self.activation_checkpointing, self.compiles, self.embedding_steps = False, False, 0
        self.texts, self.tokenizer = texts, no_tokenizer()
        self.set_objective(objective, {name: BuiltModel(model, NOWHERE, "") for name, model in models.items()})

    def check_data(self, data: TrainingData, stage: str) -> None:
        """Accept ready-made batches."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """There is no architecture to store."""
        TrainedModule.on_save_checkpoint(self, checkpoint)

    def validation_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add the texts of the loader to the batch."""
        texts = [self.texts[index] for index in texts_of_loaders(self.texts)[dataloader_idx]]
        super().validation_step({"sources": RowSources(texts), **batch}, batch_idx, dataloader_idx)


class ReadyFineTuning(FineTuning):
    """Fine-tuning of a model with a head for a task."""

    def __init__(
        self,
        model: EncoderWithHead,
        task: Task[Any, Any],
        optim: OptimConfig = OptimConfig(),
        schedule: ScheduleConfig = ScheduleConfig(),
        seed: int = 0,
    ) -> None:
        TrainedModule.__init__(self, optim, schedule, seed)
        self._set_model(InitialModel(model, BertConfig(), no_tokenizer(), task), None, activation_checkpointing=False)
        self.measures_loss, self.start_facts = False, {}


class ReadyTaskDistillation(TaskDistillation, ReadyFineTuning):
    """Distillation of some models with heads for a task."""

    ensemble = None

    def __init__(
        self, model: EncoderWithHead, teachers: Sequence[EncoderWithHead], losses: WeightedLosses, task: Task[Any, Any]
    ) -> None:
        ReadyFineTuning.__init__(self, model, task)
        self.unfreeze_every = 0
        self.set_losses(losses)
        self.set_teachers(teachers)


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
        TrainedModule.__init__(self, optim, schedule, seed)
        self.unfreeze_every, self.folders, self.tokenizer = unfreeze_every, [], no_tokenizer()
        self._set_models(model, teachers, losses)

    def check_data(self, data: TrainingData, stage: str) -> None:
        """Accept ready-made batches."""
