"""The class of a text, by a fine-tuned model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domainbert.tasks.labelled import Content
from domainbert.tasks.predictor import Predictor


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
