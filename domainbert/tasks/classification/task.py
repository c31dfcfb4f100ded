"""One class a text: a linear head on the pooled [CLS]; the windows of a long text are averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from domainbert.tasks.advice import ADVICE
from domainbert.tasks.classification.classifier import Classifier, TextPrediction
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.labelled import Labelled
from domainbert.tasks.task import Batch
from domainbert.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import Metric

    from domainbert.tasks.classification.scoring import ClassScoring

_NEAR = 0.02  # of macro F1: as good as no better
_FAR = 0.1  # of macro F1: better, whatever the accuracy


class ClassificationTask(TextTask[LabelledText, TextPrediction]):
    """Gives each text one of `labels`."""

    predictor = Classifier
    usage = "from domainbert import load_classifier"

    def target(self, item: LabelledText) -> int:
        """See `TextTask.target`."""
        return self.labels.index(item.label)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy, summed over the texts."""
        return functional.cross_entropy(mean_over_windows(logits, batch), self.targets(batch), reduction="sum")

    def metric(self) -> Metric:
        """Macro F1 and accuracy."""
        from domainbert.metrics.classification import ClassificationF1

        return ClassificationF1(len(self.labels))

    def update(self, metric: Metric, logits: Tensor, batch: Batch, items: Sequence[LabelledText]) -> None:
        """See `Task.update`."""
        gold = torch.tensor([self.target(items[item]) for item in batch["items"].tolist()], device=logits.device)
        metric.update(gold, mean_over_windows(logits, batch).argmax(dim=-1))

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

    @classmethod
    def scoring(
        cls, config: Classification, test: Labelled[LabelledText], train: Labelled[LabelledText] | None
    ) -> ClassScoring:
        """See `Task.scoring`."""
        from domainbert.tasks.classification.scoring import ClassScoring

        return ClassScoring(config, test)


def _of_one_class(labels: Sequence[str]) -> tuple[float, float]:
    """Macro F1 and accuracy of the most frequent class for every text."""
    counts = Counter(labels)
    share = counts.most_common(1)[0][1] / len(labels)
    return 2 * share / (1 + share) / len(counts), share
