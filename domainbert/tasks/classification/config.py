"""Classes of texts, as the YAML names them. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from domainbert.tasks.config import Headline
from domainbert.tasks.text_files import TextFormat, TextTaskConfig


@dataclass(frozen=True)
class ClassificationFormat(TextFormat):
    """Where the text and its class stand in a JSONL, CSV or TSV file."""

    label_key: str = "label"
    """Key or column of the class name."""


@dataclass(frozen=True)
class Classification(TextTaskConfig):
    """One of several classes for each text."""

    title = "Text classifier"
    headline = Headline("f1", "macro F1")
    further = (Headline("accuracy", "accuracy"),)

    format: ClassificationFormat = field(default_factory=ClassificationFormat)
    """Keys of the labelled files."""

    @classmethod
    def adopts(cls, head: str | None, fields: Mapping[str, Any]) -> bool:
        """See `TaskConfig.adopts`; `transformers` takes a single output without a `problem_type` for a regression."""
        kind, labels = fields.get("problem_type"), fields.get("id2label")
        classes = kind == "single_label_classification" or (kind is None and (labels is None or len(labels) > 1))
        return head == "sequence" and classes
