"""The task: squared error in training, absolute error as the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from domainbert.labelled.items import Labelled
from domainbert.tasks.capabilities import Teaching
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.scoring import CountedScoring
from domainbert.tasks.text_task import TextTask
from mine.grade.config import Grade, GradedText


@dataclass(frozen=True)
class Graded:
    """The grade that a model gives a text."""

    grade: float


class AbsoluteError(Metric):
    """The mean absolute error of a validation, over all processes."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("summed", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, errors: Tensor) -> None:
        """Add differences between prediction and gold (N,)."""
        self.summed += errors.abs().double().sum()
        self.count += errors.numel()

    def compute(self) -> dict[str, Tensor]:
        """The headline, under its key."""
        return {"mae": self.summed / self.count}


def mean_error(counts: NDArray[Any]) -> NDArray[Any]:
    """The score of counts (..., labels, 2): summed errors by the number of texts."""
    found: NDArray[Any] = counts[..., 0, 0] / counts[..., 0, 1]
    return found


class GradeScoring(CountedScoring):
    """A test set, to which models are compared."""

    statistics: ClassVar[dict[str, Any]] = {"mae": mean_error}

    def row(self, item: GradedText, prediction: Graded) -> dict[str, Any]:
        """See `Scoring.row`."""
        return {"text": item.content, "gold": item.grade, "predicted": prediction.grade}

    def count(self, predictions: Sequence[Graded]) -> NDArray[Any]:
        """See `CountedScoring.count`: (items, 1, 2), the error and 1."""
        errors = [abs(item.grade - one.grade) for item, one in zip(self.test.items, predictions, strict=True)]
        return np.stack([errors, np.ones(len(errors))], axis=-1)[:, None]


class GradeTeaching(Teaching["GradeTask"]):
    """Distillation compares grades."""

    def divergence(self, teacher: Tensor, student: Tensor, example: Tensor) -> Tensor:
        """Return squared differences."""
        return (teacher - student).square().sum(dim=-1)


class GradeTask(TextTask[GradedText, Graded]):
    """A number for each text: the one output of a linear head on the pooled [CLS]."""

    teaching = GradeTeaching(is_softmax=False)
    scoring = GradeScoring
    unknown = float("nan")  # the target of a text without a grade

    @classmethod
    def of_training(cls, config: Grade, train: Labelled[GradedText]) -> GradeTask:
        """See `Task.of_training`: the one output is called "grade"."""
        return cls(["grade"])

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """See `Task.folder_facts`: what `transformers` has to know."""
        return {"problem_type": "regression"}

    def target(self, item: GradedText) -> float:
        """See `TextTask.target`."""
        return item.grade

    def loss(self, logits: Tensor, batch: Mapping[str, Any]) -> Tensor:
        """See `Task.loss`: squared errors; texts without a grade are left out."""
        errors = mean_over_windows(logits, batch)[:, 0] - self.targets(batch).float()
        return errors[~errors.isnan()].square().sum()

    def metric(self) -> AbsoluteError:
        """See `Task.metric`."""
        return AbsoluteError()

    def update(self, metric: Metric, logits: Tensor, batch: Mapping[str, Any], items: Sequence[GradedText]) -> None:
        """See `Task.update`."""
        gold = torch.tensor([items[item].grade for item in batch["items"].tolist()])
        metric.update(mean_over_windows(logits, batch)[:, 0] - gold)

    def decode(self, logits: Tensor, batch: Mapping[str, Any]) -> list[Graded]:
        """See `Task.decode`."""
        return [Graded(grade) for grade in mean_over_windows(logits, batch)[:, 0].tolist()]
