"""Settings of text regression. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from domainbert.labelled.file_sample import Sample
from domainbert.labelled.formats import RowFormat
from domainbert.labelled.infer_columns import row_keys
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import DetectedTask, FormatDetector, TextTaskConfig

PROBLEM_TYPE = "regression"
"""Value of `problem_type` in `config.json`, as in `transformers`."""


@dataclass(frozen=True)
class RegressionFormat(RowFormat):
    """Columns of the text and its number in a JSONL, CSV or TSV file."""

    label_key: str = "label"
    """Key of the number in JSONL, or column with decimal digits such as 3.5 or 2e-3."""


class RegressionDetector(FormatDetector["Regression"]):
    """Detects files with a number per text; whole numbers from 0 are classes, not numbers."""

    @override
    def detect(self, kind: type[Regression], sample: Sample) -> DetectedTask | None:
        keys = row_keys(sample)
        if keys is None or not keys.labels.may_be_quantities:
            return None
        numbers = keys.labels.numbers
        reason = f"{keys.description}, numbers from {min(numbers):g} to {max(numbers):g} under {keys.labels.key!r}"
        return DetectedTask(kind(format=RegressionFormat(**keys.format_fields)), reason)

    @override
    def matches_model(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        """Return whether a folder has a regression model: one label, and `problem_type` regression or missing."""
        problem_type, labels = fields.get("problem_type"), fields.get("id2label") or {}
        return head == "sequence" and len(labels) == 1 and problem_type in (PROBLEM_TYPE, None)


@dataclass(frozen=True)
class Regression(TextTaskConfig):
    """Text regression: a number for each text or pair, such as a similarity, a grade or a year.

    >>> from domainbert import Regression
    >>> Regression().name, Regression().headline.name
    ('regression', 'Pearson correlation')
    """

    title = "Text regression"
    fixed_outputs = True
    pipeline_tag = "text-classification"
    format_detector = RegressionDetector()
    whole = Headline("pearson", "Pearson correlation", percent=False)
    further = (
        Headline("spearman", "Spearman correlation", percent=False),
        Headline("rmse", "RMSE", "minimize", percent=False),
        Headline("mae", "mean absolute error", "minimize", percent=False),
        Headline("r2", "R2", percent=False),
    )

    format: RegressionFormat = field(default_factory=RegressionFormat)
    """Keys of the labelled files."""
