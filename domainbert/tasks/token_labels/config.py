"""Labels of words, as the YAML names them. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from domainbert.tasks.config import Headline, TaskConfig
from domainbert.tasks.tagged_files import TaggedFormat


@dataclass(frozen=True)
class TokenLabels(TaskConfig):
    """A label for each word, scored word by word: a prefix such as I- has no meaning, and no entities are made."""

    title = "Token classifier"
    pipeline_tag = "token-classification"
    headline = Headline("macro_f1", "mean token F1")

    format: TaggedFormat = field(default_factory=TaggedFormat)
    """Columns of the labelled files."""

    outside: str | None = "O"
    """The label that means nothing, and is left out of F1. null where every label counts, as parts of speech do."""

    head: Literal["linear", "crf"] = "linear"
    """`crf` puts a CRF on the linear head, which weighs each label with its neighbours; `transformers` loads the folder
    without it."""
