"""The labels of a text, by a fine-tuned model."""

from __future__ import annotations

from dataclasses import dataclass

from domainbert.tasks.predictor import Predictor


@dataclass(frozen=True)
class LabelsOfText:
    """The labels of a text, and the probability of every label."""

    labels: list[str]
    scores: dict[str, float]


class MultiLabeller(Predictor[LabelsOfText]):
    """Gives texts labels."""

    kind = "a multi-label classifier with the labels"
