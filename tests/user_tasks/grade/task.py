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

from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.labelled import Labelled
from domainbert.tasks.scoring import CountedScoring
from domainbert.tasks.text_task import TextTask
from tests.user_tasks.grade.config import Grade, GradedText


@dataclass(frozen=True)
class Graded:
    grade: float


class AbsoluteError(Metric):
    def __init__(self) -> None:
        super().__init__()
        self.add_state("summed", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, errors: Tensor) -> None:
        self.summed += errors.abs().double().sum()
        self.count += errors.numel()

    def compute(self) -> dict[str, Tensor]:
        return {"mae": self.summed / self.count}


def mean_error(counts: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = counts[..., 0, 0] / counts[..., 0, 1]
    return found


class GradeScoring(CountedScoring):
    statistics: ClassVar[dict[str, Any]] = {"mae": mean_error}

    def row(self, item: GradedText, prediction: Graded) -> dict[str, Any]:
        return {"text": item.content, "gold": item.grade, "predicted": prediction.grade}

    def count(self, predictions: Sequence[Graded]) -> NDArray[Any]:
        errors = [abs(item.grade - one.grade) for item, one in zip(self.test.items, predictions, strict=True)]
        return np.stack([errors, np.ones(len(errors))], axis=-1)[:, None]


class GradeTask(TextTask[GradedText, Graded]):
    exclusive = False
    unknown = float("nan")

    @classmethod
    def of_training(cls, config: Grade, train: Labelled[GradedText]) -> GradeTask:
        return cls(["grade"])

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        return {"problem_type": "regression"}

    def target(self, item: GradedText) -> float:
        return item.grade

    def loss(self, logits: Tensor, batch: Mapping[str, Any]) -> Tensor:
        errors = mean_over_windows(logits, batch)[:, 0] - self.targets(batch).float()
        return errors[~errors.isnan()].square().sum()

    def divergence(self, teacher: Tensor, student: Tensor) -> Tensor:
        return (teacher - student).square().sum(dim=-1)

    def metric(self) -> AbsoluteError:
        return AbsoluteError()

    def update(self, metric: Metric, logits: Tensor, batch: Mapping[str, Any], items: Sequence[GradedText]) -> None:
        gold = torch.tensor([items[item].grade for item in batch["items"].tolist()])
        metric.update(mean_over_windows(logits, batch)[:, 0] - gold)

    def decode(self, logits: Tensor, batch: Mapping[str, Any]) -> list[Graded]:
        return [Graded(grade) for grade in mean_over_windows(logits, batch)[:, 0].tolist()]

    @classmethod
    def scoring(cls, config: Grade, test: Labelled[GradedText], train: Labelled[GradedText] | None) -> GradeScoring:
        return GradeScoring(config, test)
