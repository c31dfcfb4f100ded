"""Texts with one class each as a test set."""

from __future__ import annotations

from typing import Any

from domainbert.metrics.summary import Resampling, Summary, summarize_classes
from domainbert.metrics.table import classification_lines
from domainbert.tasks.classification.classifier import TextPrediction
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.scoring import Scoring


class ClassScoring(Scoring):
    """Texts with one class each."""

    def row(self, item: LabelledText, prediction: TextPrediction) -> dict[str, Any]:
        """See `Scoring.row`."""
        gold = {"text": item.text, "gold": item.label}
        return {**gold, "predicted": prediction.label, "scores": prediction.scores}

    def summary(self, resampling: Resampling) -> Summary:
        """The scores of all systems."""
        gold = [text.label for text in self.test.items]
        systems = {
            name: {seed: [one.label for one in found] for seed, found in runs.items()}
            for name, runs in self.predictions.items()
        }
        return summarize_classes(gold, systems, sorted(self.labels), resampling)

    def lines(self, summary: Summary) -> list[str]:
        """The summary for a person."""
        return classification_lines(summary)
