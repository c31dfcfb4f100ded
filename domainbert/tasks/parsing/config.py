"""Settings of dependency parsing. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import override

from domainbert.base.fields import check_fields, read_field
from domainbert.encoders.config import Width
from domainbert.labelled.file_sample import Sample
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import DetectedTask, Distillation, Evaluation, FormatDetector, TaskConfig

Decoding = Literal["mst", "greedy"]
DECODING = "domainbert_decode"  # key of config.json


@dataclass(frozen=True)
class ParsingFormat:
    """Reading of labels in CoNLL-U or CoNLL-X; the columns are fixed by these formats."""

    subtypes: bool = True
    """Keep the subtype of a label after the colon (`nsubj:pass`). `false` keeps only the universal part (`nsubj`), as
    in the CoNLL 2018 evaluation; `evaluate` then removes the subtypes of predicted labels too."""

    def read_label(self, label: str) -> str:
        """Return the label, without subtype if `subtypes` is false."""
        return label if self.subtypes else label.partition(":")[0]


class ParsingDetector(FormatDetector["Parsing"]):
    """Detects files with ten columns: word numbers in the first, heads in the seventh."""

    many_targets = True

    @override
    def detect(self, kind: type[Parsing], sample: Sample) -> DetectedTask | None:
        rows = [columns for columns in sample.words if columns[0].isdecimal()]
        # the seventh column has the heads
        if not rows or len(rows[0]) != 10 or not all(columns[6].isdecimal() for columns in rows):
            return None
        return DetectedTask(kind(), "heads and labels in the ten columns of CoNLL-U", specificity=4)

    @override
    def matches_model(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        return head == "biaffine"


class ParsingEvaluation(Evaluation):
    """Evaluation with the decoding algorithm of training."""

    @override
    def settings_from_model_config(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if DECODING not in fields:
            return {}
        return {"decode": read_field(fields, DECODING, Decoding)}


@dataclass(frozen=True)
class Parsing(TaskConfig):
    """Dependency parsing: for each word its head (a word or the root) and the label of the arc.

    >>> from domainbert import Parsing
    >>> Parsing().name, Parsing().headline.name
    ('parsing', 'LAS')
    """

    title = "Dependency parser"
    headline = Headline("las", "LAS")
    format_detector = ParsingDetector()
    distillation = Distillation(has_logits=False, shares_vocabulary=True)
    evaluation = ParsingEvaluation(scoring_settings=("slice_keys", "subtypes"))

    format: ParsingFormat = field(default_factory=ParsingFormat)
    """Reading of labels."""

    decode: Decoding = "mst"
    """Decoding of arc scores in validation and `evaluate`; `predict` uses the setting of `finetune`. `mst` gives the
    maximum spanning tree with one root. `greedy` gives each word its best head, as SciBERT did: there may be cycles,
    and several roots or none."""

    arc_size: Width = 100
    """Width of the projections for arc scores."""

    label_size: Width = 100
    """Width of the projections for label scores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self)

    @override
    def read_labels(self, labels: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.format.read_label, labels)))
