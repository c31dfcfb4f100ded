"""Settings of text classification. Free of torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Dropout, Range
from domainbert.labelled.file_sample import Sample
from domainbert.labelled.formats import TextFormat
from domainbert.labelled.infer_columns import row_keys
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import DetectedTask, FormatDetector, TextTaskConfig
from domainbert.tasks.loss_config import LabelWeights, check_weighted


@dataclass(frozen=True)
class ClassificationFormat(TextFormat):
    """Columns of the text and its class in a JSONL, CSV or TSV file."""

    label_key: str = "label"
    """Key or column of the class name."""


class ClassificationDetector(FormatDetector["Classification"]):
    """Detects files with a class name per text, or a number with few different values."""

    @override
    def detect(self, kind: type[Classification], sample: Sample) -> DetectedTask | None:
        keys = row_keys(sample)
        if keys is None or not keys.labels.may_be_classes:
            return None
        values = "whole numbers" if keys.labels.are_whole else "names"
        reason = f"{keys.description}, {keys.labels.num_distinct} {values} under {keys.labels.key!r}"
        return DetectedTask(kind(format=ClassificationFormat(**keys.format_fields)), reason)

    @override
    def matches_model(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        """Return whether a model folder has a text classifier, from its head and the fields of its `config.json`.

        Without `problem_type`, a model with several labels is a classifier, and a model with one label is a regression
        model, as in `transformers`. Without `id2label`, `transformers` gives a model two labels.
        """
        problem_type, labels = fields.get("problem_type"), fields.get("id2label")
        has_several_labels = labels is None or len(labels) > 1
        is_classifier = problem_type == "single_label_classification" or (problem_type is None and has_several_labels)
        return head == "sequence" and is_classifier


@dataclass(frozen=True)
class Classification(TextTaskConfig):
    """Text classification: one of several classes per text.

    >>> from domainbert import Classification
    >>> Classification().name, Classification().headline.name
    ('classification', 'macro F1')
    """

    title = "Text classifier"
    pipeline_tag = "text-classification"
    whole = Headline("f1", "macro F1")
    further = (Headline("accuracy", "accuracy"),)
    format_detector = ClassificationDetector()

    format: ClassificationFormat = field(default_factory=ClassificationFormat)
    """Keys of the labelled files."""

    class_weights: LabelWeights | None = None
    """Weight of each class in the loss, by default 1; `balanced` takes n / (classes * count). Weights are scaled to a
    mean of 1 over the training set; the loss is the weighted sum divided by the number of texts."""

    label_smoothing: Dropout = 0.0
    """Share of the target probability that is distributed uniformly over all classes."""

    balanced_sampling: Annotated[float, Range(0, 1, exclude_low=True, exclude_high=True)] | bool = False
    """`true` samples all classes equally often; a power between 0 and 1 samples in proportion to count ** power. The
    length of an epoch does not change."""

    calibrate: bool = False
    """Fit a temperature on validation that divides the logits in prediction; `evaluate` reports calibration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weights is not None and self.balanced_sampling:
            raise DomainbertError(where="balanced_sampling", found="with class_weights", expected="only one of the two")

    @override
    def check_labels(self, labels: Collection[str]) -> None:
        check_weighted(self.class_weights, labels, "class_weights")
