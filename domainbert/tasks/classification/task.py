"""Text classification: a linear head on the pooled state; logits are averaged over the windows of a long text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import Self, override

from domainbert.base.fields import PositiveFinite, read_field
from domainbert.data.batches import GlobalOrder, SharesOrder
from domainbert.labelled.contents import Content
from domainbert.labelled.items import Labelled, label_counts
from domainbert.metrics.table import CALIBRATION_TITLES
from domainbert.tasks.capabilities import (
    DistillationTargets,
    TrainingHooks,
)
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.classification.scoring import ClassScoring, TextPrediction, calibrated_scores
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.loss_config import resolve_weights
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.task import ADVICE, MIN_GAIN, Batch
from domainbert.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import Metric

_TEMPERATURE = "domainbert_temperature"  # key of config.json
_LARGE_GAIN = 0.1  # macro F1 above the baseline that is better regardless of accuracy


class Classifier(Predictor[TextPrediction]):
    """Predictor of the class of each text."""

    kind = "a classifier with the classes"
    loader = "load_classifier"

    def predict_texts(self, texts: Iterable[Content] | Content) -> list[TextPrediction]:
        """Return the predicted class of each text."""
        return self.predict(texts)


class ClassTrainingHooks(TrainingHooks["ClassificationTask"]):
    """Balanced sampling, calibration, and a warning about classifiers no better than the majority class."""

    @override
    def order(self, task: ClassificationTask, items: Sequence[LabelledText], batch_size: int, seed: int) -> GlobalOrder:
        """Return the order of the training texts: balanced by class if `balanced_sampling` is set."""
        sampling = task.learning.balanced_sampling
        if sampling is False:
            return super().order(task, items, batch_size, seed)
        # only the classes that occur: `labels` may have classes without a text
        targets = [task.target(item) for item in items]
        _, classes, counts = np.unique(targets, return_inverse=True, return_counts=True)
        power = 0.0 if sampling is True else sampling  # of the count of a class
        return SharesOrder(classes, counts**power, batch_size, seed)

    @override
    def remarks(self, task: ClassificationTask, scores: Mapping[str, float]) -> list[str]:
        """Return a line with the temperature and the calibration scores before and after it; [] without `calibrate`."""
        if not task.learning.calibrate:
            return []
        pairs = [
            f"{name} {scores[f'uncalibrated_{key}']:.4f} -> {scores[key]:.4f}"
            for key, name in CALIBRATION_TITLES.items()
        ]
        return [f"temperature {scores.get('temperature', 1.0):.3f} fitted on validation: {', '.join(pairs)}"]

    @override
    def warnings(
        self, task: ClassificationTask, items: Sequence[LabelledText], scores: Mapping[str, float]
    ) -> list[str]:
        f1, accuracy = _majority_scores([item.label for item in items])  # the baseline
        has_low_f1 = scores["f1"] <= f1 + MIN_GAIN
        has_low_accuracy = scores["accuracy"] <= accuracy and scores["f1"] <= f1 + _LARGE_GAIN
        has_one_class = f1 == 1  # then no model can be better
        if has_one_class or not (has_low_f1 or has_low_accuracy):
            return []
        achieved = f"macro F1 {100 * scores['f1']:.1f} and accuracy {100 * scores['accuracy']:.1f} on validation"
        baseline = f"predicting one class for every text gets {100 * f1:.1f} and {100 * accuracy:.1f}"
        return [f"{achieved}, while {baseline}; {ADVICE}"]


class ClassificationTask(TextTask[LabelledText, TextPrediction]):
    """Text classification with the classes `labels`.

    Attributes:
        learning: settings of the training; defaults for a model folder.
        temperature: divisor of the logits in prediction.
        weights: weight of each class in the loss; None without weights.
    """

    learned = (*TextTask.learned, "weights")
    predictor = Classifier
    scoring = ClassScoring
    training_hooks = ClassTrainingHooks()
    distillation_targets = DistillationTargets()

    def __init__(self, labels: Sequence[str], learning: Classification | None = None) -> None:
        super().__init__(labels)
        self.learning = learning or Classification()
        self.temperature = 1.0
        self.weights: list[float] | None = None

    @classmethod
    @override
    def from_labels(cls, config: Classification, labels: Sequence[str]) -> Self:
        task = super().from_labels(config, labels)
        task.learning = config
        return task

    @property
    @override
    def needs_training_set(self) -> bool:
        return self.learning.class_weights is not None

    @override
    def learn_from(self, train: Labelled[LabelledText]) -> None:
        super().learn_from(train)
        self.weights = _class_weights(self.learning, self.labels, label_counts(train.items))

    @classmethod
    @override
    def from_model_folder(cls, labels: Sequence[str], fields: Mapping[str, Any]) -> Self:
        """Return the task of a model folder, with its temperature if it has one."""
        task = super().from_model_folder(labels, fields)
        task.temperature = read_field(fields, _TEMPERATURE, PositiveFinite, 1.0)
        return task

    def model_config_fields(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """Return the key of the second text in a row, if the texts are pairs, and the temperature fitted on validation,
        if `calibrate` is set."""
        config_fields = super().model_config_fields(scores)
        if self.learning.calibrate:
            # six significant digits; 1.0 before the first validation
            config_fields[_TEMPERATURE] = float(f"{scores.get('temperature', 1.0):.6g}")
        return config_fields

    @override
    def target(self, item: LabelledText) -> int:
        return self.labels.index(item.label)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the cross-entropy summed over the texts, weighted by class."""
        logits = mean_over_windows(logits, batch)
        weight = None if self.weights is None else logits.new_tensor(self.weights)
        smoothing = self.learning.label_smoothing
        return functional.cross_entropy(
            logits, self.targets(batch), weight=weight, reduction="sum", label_smoothing=smoothing
        )

    def metric(self) -> Metric:
        """Return the metric of macro F1 and accuracy, with calibration and temperature if `calibrate` is set."""
        from domainbert.metrics.modules import ClassificationScores, RowScores  # imports torchmetrics, takes seconds

        if self.learning.calibrate:
            return RowScores(calibrated_scores, 1 + len(self.labels))  # a row: the gold label and all logits
        return ClassificationScores(self.labels)

    @override
    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[LabelledText]) -> None:
        gold = np.array([self.target(item) for item in items])
        means = mean_over_windows(logits, batch).float().cpu().numpy()
        if self.learning.calibrate:
            metric.update(np.column_stack([gold, means]).astype(np.float64))  # the rows of `calibrated_scores`
        else:
            metric.update(means.argmax(axis=1), gold)

    def decode(self, logits: Tensor, batch: Batch) -> list[TextPrediction]:
        """Return the class of each text, which the temperature does not change, and all probabilities."""
        means = mean_over_windows(logits, batch)
        # double precision: at a low temperature probabilities underflow in float32, and NLL needs their logarithms
        rows = torch.softmax(means.cpu().double() / self.temperature, dim=-1).tolist()
        return [
            TextPrediction(self.labels[best], dict(zip(self.labels, row, strict=True)))
            for best, row in zip(means.argmax(dim=-1).tolist(), rows, strict=True)
        ]


def _class_weights(learning: Classification, labels: Sequence[str], counts: Mapping[str, int]) -> list[float] | None:
    """Return class weights scaled to a mean of 1 over the training set; None without `class_weights`.

    The weighted losses of a batch are then divided by its number of texts, where torch's `cross_entropy(weight=...)`
    divides by its sum of weights: the loss of a text does not depend on the rest of its batch.
    """
    counts = {label: max(counts.get(label, 0), 1) for label in labels}  # at least 1, as a divisor
    total = sum(counts.values())
    weights = resolve_weights(learning.class_weights, labels, lambda label: total / (len(labels) * counts[label]))
    if weights is None:
        return None
    mean = sum(counts[label] * weight for label, weight in zip(labels, weights, strict=True)) / total
    return [weight / mean for weight in weights]


def _majority_scores(labels: Sequence[str]) -> tuple[float, float]:
    """Return macro F1 and accuracy if the most frequent class is predicted for every text."""
    counts = Counter(labels)
    accuracy = max(counts.values()) / len(labels)
    f1_of_class = 2 * accuracy / (1 + accuracy)  # its precision is the accuracy, its recall 1; other classes have F1 0
    return f1_of_class / len(counts), accuracy
