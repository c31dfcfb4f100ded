"""Settings of multi-label text classification. Free of torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.labelled.file_sample import Sample
from domainbert.labelled.formats import TextFormat
from domainbert.labelled.infer_columns import row_keys
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import DetectedTask, FormatDetector, TextTaskConfig
from domainbert.tasks.loss_config import LabelWeights, check_weighted

PROBLEM_TYPE = "multi_label_classification"
"""Value of `problem_type` in `config.json`, as in `transformers`."""


@dataclass(frozen=True)
class MultiLabelFormat(TextFormat):
    """Columns of the text and its labels in a JSONL, CSV or TSV file."""

    label_key: str = "labels"
    """Key or column of the labels. JSONL has a list of names, or of numbers with names in `label_names`, or, if all
    lists of the file are as long as `label_names`, a 0 or 1 per name. An empty list is a text without labels."""

    separator: str = ";"
    """Separator of labels in a column of CSV or TSV; surrounding white space is removed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.separator.strip():
            raise DomainbertError(
                where="separator", found=repr(self.separator), expected="visible characters, such as ';'"
            )


class MultiLabelDetector(FormatDetector["MultiLabel"]):
    """Detects files with a list of labels per text; in CSV or TSV, labels with the default separator."""

    @override
    def detect(self, kind: type[MultiLabel], sample: Sample) -> DetectedTask | None:
        keys = row_keys(sample)
        if keys is None:
            return None
        format = MultiLabelFormat(**keys.format_fields)
        values = keys.labels.values
        has_separator = sample.kind in ("csv", "tsv") and any(format.separator in value for value in values)
        if not has_separator and not keys.labels.are_lists:
            return None
        how = f"labels with {format.separator!r} between" if has_separator else "lists of labels"
        return DetectedTask(kind(format=format), f"{keys.description}, {how} under {keys.labels.key!r}", specificity=2)

    @override
    def matches_model(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        return head == "sequence" and fields.get("problem_type") == PROBLEM_TYPE


@dataclass(frozen=True)
class MultiLabel(TextTaskConfig):
    """Multi-label text classification: any number of labels per text, including none.

    >>> from domainbert import MultiLabel
    >>> MultiLabel().name, MultiLabel().headline.name
    ('multi_label', 'micro F1')
    """

    title = "Multi-label text classifier"
    pipeline_tag = "text-classification"
    whole = Headline("f1", "micro F1")
    further = (Headline("macro_f1", "macro F1"), Headline("precision", "precision"), Headline("recall", "recall"))
    format_detector = MultiLabelDetector()

    format: MultiLabelFormat = field(default_factory=MultiLabelFormat)
    """Keys of the labelled files."""

    pos_weight: LabelWeights | None = None
    """Weight of positive texts of each label in the loss, by default 1; `balanced` takes the number of negative texts
    divided by the number of positive texts."""

    @override
    def check_labels(self, labels: Collection[str]) -> None:
        """Raise `DomainbertError` if there are no training labels, or `pos_weight` names a label not among them."""
        if not labels:
            raise DomainbertError(
                "no text has a label", where="train", expected=f"at least one under {self.format.label_key!r}"
            )
        check_weighted(self.pos_weight, labels, "pos_weight")
