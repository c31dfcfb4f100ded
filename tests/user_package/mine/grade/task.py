"""The task: squared error in training, absolute error as the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MetricCollection
from typing_extensions import override

from domainbert.labelled.items import Labelled
from domainbert.tasks.capabilities import Teaching
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.scoring import CountedScoring
from domainbert.tasks.text_task import TextTask
from mine.grade.config import Grade, GradedText

Batch = Mapping[str, Any]


@dataclass(frozen=True)
class Graded:
    """The grade that a model gives a text."""

    grade: float


def mean_error(counts: NDArray[Any]) -> NDArray[Any]:
    """Mean absolute errors of counts (..., 1, 2): sums of absolute errors, and numbers of texts."""
    errors: NDArray[Any] = counts[..., 0, 0] / counts[..., 0, 1]
    return errors


class GradeScoring(CountedScoring):
    """A test set: of each text the absolute error and 1, whose sums give the mean absolute error."""

    statistics: ClassVar[dict[str, Any]] = {"mae": mean_error}

    @override
    def row(self, item: GradedText, prediction: Graded) -> dict[str, Any]:
        return {"text": item.content, "gold": item.grade, "predicted": prediction.grade}

    @override
    def count(self, predictions: Sequence[Graded]) -> NDArray[Any]:
        errors = [abs(item.grade - one.grade) for item, one in zip(self.test.items, predictions, strict=True)]
        return np.stack([errors, np.ones(len(errors))], axis=-1)[:, None]


class GradeTask(TextTask[GradedText, Graded]):
    """A number for each text: the one output of a linear head on the pooled [CLS]."""

    scoring = GradeScoring
    teaching = Teaching[Any](False, divergence=lambda teacher, student, _: (teacher - student).square().sum(dim=-1))
    unknown = float("nan")  # the target of a text without a grade, which the loss leaves out

    @classmethod
    @override
    def of_training(cls, config: Grade, train: Labelled[GradedText]) -> GradeTask:
        return cls(["grade"])

    @override
    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        return {"problem_type": "regression"}  # for `transformers`

    @override
    def target(self, item: GradedText) -> float:
        return item.grade

    @override
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        errors = mean_over_windows(logits, batch)[:, 0] - self.targets(batch).float()
        return errors[~errors.isnan()].square().sum()

    @override
    def metric(self) -> MetricCollection:
        return MetricCollection({"mae": MeanAbsoluteError()})

    @override
    def update(self, metric: Any, logits: Tensor, batch: Batch, items: Sequence[GradedText]) -> None:
        gold = torch.tensor([items[item].grade for item in batch["items"].tolist()])
        metric.update(mean_over_windows(logits, batch)[:, 0], gold.to(logits.device))

    @override
    def decode(self, logits: Tensor, batch: Batch) -> list[Graded]:
        return [Graded(grade) for grade in mean_over_windows(logits, batch)[:, 0].tolist()]
