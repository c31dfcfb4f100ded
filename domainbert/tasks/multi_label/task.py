"""Any number of labels a text: a linear head on the pooled [CLS], a sigmoid for each label, and one threshold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from typing_extensions import Self, override

from domainbert.base.errors import DomainbertError
from domainbert.data.types import IGNORED
from domainbert.labelled.items import Labelled, label_counts
from domainbert.metrics.classification import (
    threshold_name,
)
from domainbert.tasks.capabilities import Comparing, Explaining, Fitting, Showing, Teaching
from domainbert.tasks.claims import Claim
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.label_weights import weights_of
from domainbert.tasks.multi_label.config import PROBLEM_TYPE, MultiLabel
from domainbert.tasks.multi_label.files import LabelledText
from domainbert.tasks.multi_label.scoring import LabelsOfText, MultiLabelScoring
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.task import ADVICE, Batch
from domainbert.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import Metric

_THRESHOLD = "domainbert_threshold"  # key of config.json
_USUAL = 0.5
_NEAR = 0.02  # of micro F1: as good as no better


class MultiLabeller(Predictor[LabelsOfText]):
    """Gives texts labels."""

    kind = "a multi-label classifier with the labels"


def sigmoid_divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence (N,) of sigmoids of logits (N, labels), the mean over labels."""
    holds = torch.sigmoid(teacher)
    yes = functional.logsigmoid(teacher) - functional.logsigmoid(student)
    no = functional.logsigmoid(-teacher) - functional.logsigmoid(-student)
    return (holds * yes + (1 - holds) * no).mean(dim=-1)


class LabelsFitting(Fitting["MultiLabelTask"]):
    """Slices at the threshold of the whole set, and a warning about models that always give the same labels."""

    @override
    def metric_of_slice(self, task: MultiLabelTask) -> Metric:
        """Return micro F1 at every threshold; `score_of_slice` takes the threshold of the whole set."""
        from domainbert.metrics.modules import MultiLabelScores

        return MultiLabelScores(task.labels, every_threshold=True)

    @override
    def score_of_slice(self, task: MultiLabelTask, scores: Mapping[str, Any], whole: Mapping[str, Any]) -> float:
        return float(scores[threshold_name(float(whole["threshold"]))])

    @override
    def warnings(self, task: MultiLabelTask, items: Sequence[LabelledText], scores: Mapping[str, float]) -> list[str]:
        counts = Counter(label for item in items for label in item.labels)
        right, always = np.cumsum([count for _, count in counts.most_common()]), 0.0
        if counts:
            given = len(items) * np.arange(1, len(right) + 1)
            always = float((2 * right / (given + right[-1])).max())
        if not counts or always == 1 or scores["f1"] > always + _NEAR:
            return []
        found = f"micro F1 {100 * scores['f1']:.1f} on validation, while the same labels for every text get"
        return [f"{found} {100 * always:.1f}; {ADVICE}"]


class LabelsExplaining(Explaining["MultiLabelTask"]):
    """Explains each label that a text has."""

    @override
    def explanations(self, task: MultiLabelTask, logits: Tensor, batch: Batch) -> list[Claim]:
        def strength(number: int, logits: Tensor) -> Tensor:
            return functional.logsigmoid(mean_over_windows(logits, batch)[0, number].double())

        (prediction,) = task.decode(logits, batch)
        return [Claim(label, partial(strength, task.labels.index(label))) for label in prediction.labels]


class LabelsShowing(Showing["MultiLabelTask"]):
    """Shows the labels of a text."""

    @override
    def shown_target(self, task: MultiLabelTask, target: Any) -> str:
        return ", ".join(label for label, holds in zip(task.labels, target, strict=True) if holds) or "no label"


class MultiLabelTask(TextTask[LabelledText, LabelsOfText]):
    """Gives each text those of `labels` whose probability is at least `threshold`."""

    predictor = MultiLabeller
    scoring = MultiLabelScoring
    comparing = Comparing(mean_over_windows, sigmoid_divergence)
    explaining = LabelsExplaining()
    fitting = LabelsFitting()
    showing = LabelsShowing()
    teaching = Teaching[Any](False, divergence=lambda teacher, student, _: sigmoid_divergence(teacher, student))

    def __init__(
        self, labels: Sequence[str], threshold: float = _USUAL, pos_weight: Sequence[float] | None = None
    ) -> None:
        super().__init__(labels)
        self.threshold, self.pos_weight = threshold, pos_weight

    @classmethod
    @override
    def of_training(cls, config: MultiLabel, train: Labelled[LabelledText]) -> Self:
        """`DomainbertError` also if balanced weights are asked for a label that every text has."""
        task, counts, texts = super().of_training(config, train), label_counts(train.items), len(train.items)
        if config.pos_weight == "balanced" and (always := [one for one in counts if counts[one] == texts]):
            expected = "expected weights by name, or a label that some texts lack"
            raise DomainbertError(f"pos_weight: balanced; {train.path}: label {always[0]!r} in every text; {expected}")
        task.pos_weight = weights_of(config.pos_weight, task.labels, lambda one: texts / counts[one] - 1)
        return task

    @classmethod
    @override
    def of_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> Self:
        """The task of a model folder; without a threshold in it, 0.5."""
        threshold = fields.get(_THRESHOLD, _USUAL)
        if not isinstance(threshold, float) or not 0 < threshold < 1:
            raise DomainbertError(f"{_THRESHOLD}: found {threshold!r}; expected a number between 0 and 1")
        task = super().of_folder(labels, fields)
        task.threshold = threshold
        return task

    def folder_facts(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """The `problem_type` for `transformers`, and the threshold that is best on validation."""
        threshold = round(scores.get("threshold", 0.5), 2)  # it was logged in single precision
        return {**super().folder_facts(scores), "problem_type": PROBLEM_TYPE, _THRESHOLD: threshold}

    def target(self, item: LabelledText) -> NDArray[np.int64]:
        """1 for each of its labels, 0 for the others: (labels,)."""
        return np.isin(self.labels, item.labels).astype(np.int64)

    @property
    @override
    def unknown(self) -> NDArray[np.int64]:
        return np.full(len(self.labels), IGNORED, dtype=np.int64)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Binary cross-entropy, the mean over labels, as that of `transformers`, summed over the texts.

        Where a label holds it is multiplied by its `pos_weight`.
        """
        targets = self.targets(batch)
        known = targets[:, 0] != IGNORED
        logits = mean_over_windows(logits, batch)[known]
        weight = None if self.pos_weight is None else logits.new_tensor(self.pos_weight)
        each = functional.binary_cross_entropy_with_logits(
            logits, targets[known].float(), reduction="none", pos_weight=weight
        )
        return each.mean(dim=1).sum()

    def metric(self) -> Metric:
        """Micro and macro F1 at the threshold that is best."""
        from domainbert.metrics.modules import MultiLabelScores

        return MultiLabelScores(self.labels)

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[LabelledText]) -> None:
        gold = np.stack([self.target(items[item]) for item in batch["items"].tolist()])
        probabilities = torch.sigmoid(mean_over_windows(logits, batch))
        metric.update(probabilities, gold)

    def decode(self, logits: Tensor, batch: Batch) -> list[LabelsOfText]:
        """The labels of each text, and the probabilities of all."""
        rows = torch.sigmoid(mean_over_windows(logits, batch)).tolist()
        texts = [dict(zip(self.labels, row, strict=True)) for row in rows]
        return [
            LabelsOfText([label for label in scores if scores[label] >= self.threshold], scores) for scores in texts
        ]
