"""Classes of texts, as the YAML names them. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from domainbert.tasks.config import Headline, TaskConfig


@dataclass(frozen=True)
class ClassificationFormat:
    """Where the text and its class stand in a JSONL, CSV or TSV file."""

    text_key: str = "text"
    """Key (JSONL) or column (CSV, TSV) of the text."""

    label_key: str = "label"
    """Key or column of the class name."""

    kind: Literal["auto", "jsonl", "csv", "tsv"] = "auto"
    """What the file is; "auto" goes by its first lines, then by its suffix, and prints it."""

    label_names: tuple[str, ...] | None = None
    """What the numbers 0, 1, ... stand for in a file that has classes as numbers. They may also stand in its first row,
    as a list under "label_names"."""

    label_names_file: Path | None = None
    """A JSON file with these names: a list, an object such as {"0": "O"}, or a `config.json` with `id2label`."""


@dataclass(frozen=True)
class Classification(TaskConfig):
    """One of several classes for each text."""

    title = "Text classifier"
    headline = Headline("f1", "macro F1")

    format: ClassificationFormat = field(default_factory=ClassificationFormat)
    """Keys of the labelled files."""

    @classmethod
    def adopts(cls, head: str | None, fields: Mapping[str, Any]) -> bool:
        """See `TaskConfig.adopts`; `transformers` takes a single output without a `problem_type` for a regression."""
        kind, labels = fields.get("problem_type"), fields.get("id2label")
        classes = kind == "single_label_classification" or (kind is None and (labels is None or len(labels) > 1))
        return head == "sequence" and classes
