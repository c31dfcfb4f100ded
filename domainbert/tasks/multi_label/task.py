"""Multi-label text classification: a linear head on the pooled state, a sigmoid per label, and one threshold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from typing_extensions import Self, override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Range, read_field
from domainbert.data.packing import IGNORE_INDEX
from domainbert.labelled.items import Labelled, label_counts
from domainbert.metrics.classification import threshold_name
from domainbert.tasks.capabilities import (
    DistillationTargets,
    ExampleFormatter,
    TrainingHooks,
)
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.loss_config import resolve_weights
from domainbert.tasks.multi_label.config import PROBLEM_TYPE, MultiLabel
from domainbert.tasks.multi_label.files import LabelledText
from domainbert.tasks.multi_label.scoring import LabelsOfText, MultiLabelScoring
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.task import ADVICE, MIN_GAIN, Batch
from domainbert.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import Metric

_THRESHOLD = "domainbert_threshold"  # key of config.json
_DEFAULT_THRESHOLD = 0.5


class MultiLabeller(Predictor[LabelsOfText]):
    """Predictor of the labels of each text."""

    kind = "a multi-label classifier with the labels"


def sigmoid_divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence (N,) of sigmoids of logits (N, labels), averaged over labels."""
    probability = torch.sigmoid(teacher)
    positive = functional.logsigmoid(teacher) - functional.logsigmoid(student)
    negative = functional.logsigmoid(-teacher) - functional.logsigmoid(-student)
    return (probability * positive + (1 - probability) * negative).mean(dim=-1)


class LabelsTrainingHooks(TrainingHooks["MultiLabelTask"]):
    """Slices at the threshold of the whole set, and a warning about models no better than constant labels."""

    @override
    def metric_of_slice(self, task: MultiLabelTask) -> Metric:
        """Return the metric of micro F1 at every threshold; `score_of_slice` takes the threshold of the whole set."""
        from domainbert.metrics.modules import MultiLabelScores  # imports torchmetrics, which takes seconds

        return MultiLabelScores(task.labels, every_threshold=True)

    @override
    def score_of_slice(self, task: MultiLabelTask, scores: Mapping[str, Any], whole: Mapping[str, Any]) -> float:
        threshold_of_set = float(whole["threshold"])
        return float(scores[threshold_name(threshold_of_set)])

    @override
    def warnings(self, task: MultiLabelTask, items: Sequence[LabelledText], scores: Mapping[str, float]) -> list[str]:
        counts = Counter(label for item in items for label in item.labels)
        if not counts:
            return []
        # the best F1 = 2 x correct / (predicted + gold) of predicting the 1, 2, ... most frequent labels for every text
        num_correct = np.cumsum([count for _, count in counts.most_common()])
        num_predicted = len(items) * np.arange(1, len(num_correct) + 1)
        num_gold = counts.total()
        baseline = float((2 * num_correct / (num_predicted + num_gold)).max())
        if baseline == 1 or scores["f1"] > baseline + MIN_GAIN:  # at 1 no model can be better
            return []
        achieved = f"micro F1 {100 * scores['f1']:.1f} on validation"
        return [f"{achieved}, while predicting the same labels for every text gets {100 * baseline:.1f}; {ADVICE}"]


class LabelsFormatter(ExampleFormatter["MultiLabelTask"]):
    """Shows the labels of a text."""

    @override
    def format_target(self, task: MultiLabelTask, target: Any) -> str:
        return ", ".join(label for label, is_set in zip(task.labels, target, strict=True) if is_set) or "no label"


class MultiLabelTask(TextTask[LabelledText, LabelsOfText]):
    """Multi-label classification; predicts the labels with a probability of at least `threshold`.

    Attributes:
        pos_weight: weight of positive texts of each label in the loss; None without weights.
    """

    learned = (*TextTask.learned, "pos_weight")
    predictor = MultiLabeller
    scoring = MultiLabelScoring
    training_hooks = LabelsTrainingHooks()
    example_formatter = LabelsFormatter()
    distillation_targets = DistillationTargets[Any](
        False, divergence=lambda teacher, student, _: sigmoid_divergence(teacher, student)
    )

    def __init__(
        self, labels: Sequence[str], threshold: float = _DEFAULT_THRESHOLD, pos_weight: Sequence[float] | None = None
    ) -> None:
        super().__init__(labels)
        self.threshold, self.pos_weight = threshold, pos_weight

    @property
    @override
    def needs_training_set(self) -> bool:
        return isinstance(self.config, MultiLabel) and self.config.pos_weight is not None

    @override
    def learn_from(self, train: Labelled[LabelledText]) -> None:
        """Set the weights; raise `DomainbertError` for balanced weights if a label is in every text."""
        super().learn_from(train)
        config = self.config
        assert isinstance(config, MultiLabel)
        counts, num_texts = label_counts(train.items), len(train.items)
        constant_labels = [label for label in counts if counts[label] == num_texts]
        if config.pos_weight == "balanced" and constant_labels:
            found = f"'balanced', but every text of {train.path} has the label {constant_labels[0]!r}"
            expected = "a number for each label, or texts without this label"
            raise DomainbertError(where="pos_weight", found=found, expected=expected)
        # for "balanced": number of negative texts divided by the number of positive texts
        self.pos_weight = resolve_weights(
            config.pos_weight, self.labels, lambda label: num_texts / max(counts.get(label, 0), 1) - 1
        )

    @classmethod
    @override
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> Self:
        """Return the task of a model folder; the threshold is 0.5 if the folder has none."""
        hint = Annotated[float, Range(0, 1, exclude_low=True, exclude_high=True)]
        threshold = read_field(fields, _THRESHOLD, hint, _DEFAULT_THRESHOLD)
        task = super().from_model_folder(labels, fields)
        task.threshold = threshold
        return task

    @override
    def card_facts(self) -> dict[str, str]:
        decoding = f"the labels with at least the probability {_THRESHOLD} of config.json"
        return super().card_facts() | {"decoding": decoding}

    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the `problem_type` for `transformers`, and the best threshold on validation."""
        threshold = round(scores.get("threshold", _DEFAULT_THRESHOLD), 2)  # was logged in single precision
        return {**super().model_config_fields(scores), "problem_type": PROBLEM_TYPE, _THRESHOLD: threshold}

    @override
    def target(self, item: LabelledText) -> NDArray[np.int64]:
        """Return a 0/1 indicator of each label: (labels,)."""
        return np.isin(self.labels, item.labels).astype(np.int64)

    @property
    @override
    def unlabelled_target(self) -> NDArray[np.int64]:
        return np.full(len(self.labels), IGNORE_INDEX, dtype=np.int64)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the binary cross-entropy, averaged over labels as in `transformers` and summed over the texts.

        The term of a positive label is multiplied by its `pos_weight`.
        """
        targets = self.targets(batch)
        labelled = targets[:, 0] != IGNORE_INDEX
        logits = mean_over_windows(logits, batch)[labelled]
        weight = None if self.pos_weight is None else logits.new_tensor(self.pos_weight)
        losses = functional.binary_cross_entropy_with_logits(
            logits, targets[labelled].float(), reduction="none", pos_weight=weight
        )
        return losses.mean(dim=1).sum()

    def metric(self) -> Metric:
        """Return the metric of micro and macro F1 at the best threshold."""
        from domainbert.metrics.modules import MultiLabelScores  # imports torchmetrics, which takes seconds

        return MultiLabelScores(self.labels)

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[LabelledText]) -> None:
        gold = np.stack([self.target(item) for item in items])
        metric.update(torch.sigmoid(mean_over_windows(logits, batch)), gold)

    def decode(self, logits: Tensor, batch: Batch) -> list[LabelsOfText]:
        """Return the labels of each text, and all probabilities."""
        predictions = []
        for row in torch.sigmoid(mean_over_windows(logits, batch)).tolist():
            scores = dict(zip(self.labels, row, strict=True))
            labels = [label for label, score in scores.items() if score >= self.threshold]
            predictions.append(LabelsOfText(labels, scores))
        return predictions
