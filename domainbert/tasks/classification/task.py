"""One class a text: a linear head on the pooled [CLS]; the windows of a long text are averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from domainbert.metrics.classification import class_scores, count_class_ids
from domainbert.metrics.summary import Resampling, Summary, summarize_classes
from domainbert.metrics.table import classification_lines
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.labelled import Content
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.scoring import Scoring
from domainbert.tasks.task import ADVICE, Batch, scores_of_counts
from domainbert.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import Metric

_NEAR = 0.02  # of macro F1: as good as no better
_FAR = 0.1  # of macro F1: better, whatever the accuracy


@dataclass(frozen=True)
class TextPrediction:
    """The class of a text, and the probability of every class."""

    label: str
    scores: dict[str, float]


class Classifier(Predictor[TextPrediction]):
    """Gives texts a class."""

    kind = "a classifier with the classes"
    loader = "load_classifier"

    def predict_texts(self, texts: Sequence[Content]) -> list[TextPrediction]:
        """The class of each text."""
        return self.predict(texts)


class ClassScoring(Scoring):
    """Texts with one class each as a test set."""

    def row(self, item: LabelledText, prediction: TextPrediction) -> dict[str, Any]:
        """See `Scoring.row`."""
        gold = {**item.as_row, "gold": item.label}
        return {**gold, "predicted": prediction.label, "scores": prediction.scores}

    def summary(self, resampling: Resampling) -> Summary:
        """See `Scoring.summary`."""
        gold = [text.label for text in self.test.items]
        systems = {
            name: {seed: [one.label for one in found] for seed, found in runs.items()}
            for name, runs in self.predictions.items()
        }
        return summarize_classes(gold, systems, sorted(self.labels), resampling)

    def lines(self, summary: Summary) -> list[str]:
        """See `Scoring.lines`."""
        return classification_lines(summary)


class ClassificationTask(TextTask[LabelledText, TextPrediction]):
    """Gives each text one of `labels`."""

    predictor = Classifier
    scored_as = ClassScoring

    def target(self, item: LabelledText) -> int:
        """See `TextTask.target`."""
        return self.labels.index(item.label)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy, summed over the texts."""
        return functional.cross_entropy(mean_over_windows(logits, batch), self.targets(batch), reduction="sum")

    def metric(self) -> Metric:
        """Macro F1 and accuracy."""
        return scores_of_counts(class_scores, len(self.labels), 3)

    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[LabelledText]) -> None:
        """See `Task.update`."""
        gold = np.array([self.target(items[item]) for item in batch["items"].tolist()])
        predicted = mean_over_windows(logits, batch).argmax(dim=-1).cpu().numpy()
        metric.update(count_class_ids(gold, predicted, len(self.labels)).sum(axis=0))

    def decode(self, logits: Tensor, batch: Batch) -> list[TextPrediction]:
        """The class of each text, and the probabilities of all."""
        rows = torch.softmax(mean_over_windows(logits, batch), dim=-1).tolist()
        return [
            TextPrediction(self.labels[row.index(max(row))], dict(zip(self.labels, row, strict=True))) for row in rows
        ]

    def warnings(self, items: Sequence[LabelledText], scores: Mapping[str, float]) -> list[str]:
        """A classifier that is no better than one that always gives the same class."""
        f1, accuracy = _of_one_class([item.label for item in items])
        near = scores["f1"] <= f1 + _NEAR
        if f1 == 1 or not (near or (scores["accuracy"] <= accuracy and scores["f1"] <= f1 + _FAR)):
            return []
        found = f"macro F1 {100 * scores['f1']:.1f} and accuracy {100 * scores['accuracy']:.1f} on validation"
        always = f"one class for every text gets {100 * f1:.1f} and {100 * accuracy:.1f}"
        return [f"{found}, while {always}; {ADVICE}"]


def _of_one_class(labels: Sequence[str]) -> tuple[float, float]:
    """Macro F1 and accuracy of the most frequent class for every text."""
    counts = Counter(labels)
    share = counts.most_common(1)[0][1] / len(labels)
    return 2 * share / (1 + share) / len(counts), share
