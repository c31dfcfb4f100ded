"""Labels of texts, any number of each, as the YAML names them. Free of torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.labelled.formats import TextFormat
from domainbert.metrics.headline import Headline
from domainbert.tasks.config_capabilities import Recognising
from domainbert.tasks.label_weights import LabelWeights, check_weighted
from domainbert.tasks.text_config import TextTaskConfig

if TYPE_CHECKING:
    from domainbert.labelled.file_sample import Sample
    from domainbert.tasks.recognition import Recognised

PROBLEM_TYPE = "multi_label_classification"
"""Value of `problem_type` in `config.json`, by which `transformers` knows such a model."""


@dataclass(frozen=True)
class MultiLabelFormat(TextFormat):
    """Columns of the text and its labels in a JSONL, CSV or TSV file."""

    label_key: str = "labels"
    """Key or column of the labels. In JSONL a list of names, or of numbers whose names `label_names` gives; or, if all
    lists of the file are as long as `label_names`, of 0 and 1 for each name. An empty list is a text without labels."""

    separator: str = ";"
    """Between the labels in a column of CSV or TSV; white space beside it belongs to none of them."""

    def __post_init__(self) -> None:
        """Check the keys, and the separator."""
        super().__post_init__()
        if not self.separator.strip():
            raise DomainbertError(f"separator: found {self.separator!r}; expected a visible character or several")


class MultiLabelRecognising(Recognising["MultiLabel"]):
    """Files with a list of labels for each text; in a table, labels with the default separator."""

    @override
    def recognise(self, kind: type[MultiLabel], sample: Sample) -> Recognised | None:
        from domainbert.labelled.infer_columns import row_keys
        from domainbert.tasks.recognition import Recognised

        keys = row_keys(sample)
        if keys is None:
            return None
        format = MultiLabelFormat(**keys.of_format)
        values = keys.labels.values
        joined = sample.kind in ("csv", "tsv") and any(format.separator in value for value in values)
        if not joined and not keys.labels.are_lists:
            return None
        how = f"labels with {format.separator!r} between" if joined else "lists of labels"
        return Recognised(kind(format=format), f"{keys.in_words}, {how} under {keys.labels.key!r}", specificity=2)

    @override
    def adopts(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        return head == "sequence" and fields.get("problem_type") == PROBLEM_TYPE


@dataclass(frozen=True)
class MultiLabel(TextTaskConfig):
    """Any number of labels for each text, or none.

    >>> from domainbert import MultiLabel
    >>> MultiLabel().name, MultiLabel().headline.name
    ('multi_label', 'micro F1')
    """

    title = "Multi-label text classifier"
    pipeline_tag = "text-classification"
    whole = Headline("f1", "micro F1")
    further = (Headline("macro_f1", "macro F1"), Headline("precision", "precision"), Headline("recall", "recall"))
    recognising = MultiLabelRecognising()

    format: MultiLabelFormat = field(default_factory=MultiLabelFormat)
    """Keys of the labelled files."""

    pos_weight: LabelWeights | None = None
    """Weight in the loss of the texts that a label holds of, beside those it does not; 1 where it is not named.
    `balanced` takes the number of the latter divided by that of the former."""

    @override
    def check_labels(self, labels: Collection[str]) -> None:
        """Check the labels; `DomainbertError` also where no text of training has a label."""
        if not labels:
            raise DomainbertError("no text of training has a label; expected at least one")
        check_weighted(self.pos_weight, labels, "pos_weight")
