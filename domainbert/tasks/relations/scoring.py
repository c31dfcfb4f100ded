"""Scoring of relation classification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from typing_extensions import override

from domainbert.metrics.classification import count_classes, without_null_class
from domainbert.metrics.diagnostics import Pair
from domainbert.tasks.counted_scoring import NullLabelScoring
from domainbert.tasks.mistakes import Mark, Mistake, label_marks
from domainbert.tasks.relations.config import Relations
from domainbert.tasks.relations.files import RelatedEntities

_ENTITY_LABELS = ("head", "tail")


@dataclass(frozen=True)
class Relation:
    """Predicted relation of two entities, and the probability of every relation."""

    label: str
    scores: dict[str, float]


class RelationScoring(NullLabelScoring):
    """Scoring of relations between two entities, without the null label in F1."""

    config: Relations

    @property
    @override
    def title(self) -> str:
        return f"{self.headline.name} over {self.num_gold:,} pairs of entities"

    @override
    def row(self, item: RelatedEntities, prediction: Relation) -> dict[str, Any]:
        """Return gold and prediction of an item for the predictions file; entities have the markers of the file."""
        gold = {"text": item.content.text, "gold": item.label}
        return {**gold, "predicted": prediction.label, "scores": prediction.scores}

    @override
    def mistake(self, item: RelatedEntities, prediction: Relation) -> Mistake | None:
        """Return the error of a wrong relation, with the two entities among the gold marks; None if it is correct."""
        if item.label == prediction.label:
            return None
        gold, predicted = label_marks(item.label, prediction.label, prediction.scores, self.null_label)
        ranges = zip(_ENTITY_LABELS, item.content.entities, strict=True)
        entities = [Mark(label, *char_range) for label, char_range in ranges]
        return Mistake(item.content.text, [*gold, *entities], predicted, prediction.scores[prediction.label])

    @override
    def confusion_pairs(self, item: RelatedEntities, prediction: Relation) -> list[Pair]:
        return [(item.label, prediction.label)]

    @override
    def confidences(self, item: RelatedEntities, prediction: Relation) -> list[tuple[float, bool]]:
        return [(prediction.scores[prediction.label], item.label == prediction.label)]

    @override
    def labels_of(self, prediction: Relation) -> list[str]:
        return [prediction.label]

    @override
    def count(self, predictions: Sequence[Relation]) -> NDArray[Any]:
        """Return the counts (pairs of entities, rows, 3) of tp, fp, fn; the rows are those of `without_null_class`."""
        gold = [item.label for item in self.test.items]
        counts = count_classes(gold, [prediction.label for prediction in predictions], self.classes)
        return without_null_class(counts, self.classes, self.null_label)
