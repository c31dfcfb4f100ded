"""Squared error as the loss, mean absolute error as the score."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torchmetrics import MeanAbsoluteError, MetricCollection

from domainbert.tasks.capabilities import Batch, DistillationTargets
from domainbert.tasks.counted_scoring import MeanScoring
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.text_task import TextTask
from mine.grade.config import GradedText


@dataclass(frozen=True)
class Prediction:
    grade: float


class GradeScoring(MeanScoring):
    def item_score(self, item: GradedText, prediction: Prediction) -> float:
        return abs(item.grade - prediction.grade)

    def row(self, item: GradedText, prediction: Prediction) -> dict[str, Any]:
        return {**item.as_row, "gold": item.grade, "predicted": prediction.grade}


class GradeTask(TextTask[GradedText, Prediction]):
    outputs = ("grade",)
    unlabelled_target = float("nan")
    scoring = GradeScoring
    distillation_targets = DistillationTargets(False, divergence=lambda a, b, _: (a - b).square().sum(dim=-1))

    def target(self, item: GradedText) -> float:
        return item.grade

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        errors = mean_over_windows(logits, batch)[:, 0] - self.targets(batch).float()
        return errors[~errors.isnan()].square().sum()

    def metric(self) -> MetricCollection:
        return MetricCollection({"mae": MeanAbsoluteError()})

    def update(self, metric: MetricCollection, logits: Tensor, batch: Batch, items: list[GradedText]) -> None:
        metric.update(mean_over_windows(logits, batch)[:, 0], self.targets(batch).float())

    def decode(self, logits: Tensor, batch: Batch) -> list[Prediction]:
        return [Prediction(grade) for grade in mean_over_windows(logits, batch)[:, 0].tolist()]
