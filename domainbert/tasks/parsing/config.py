"""Dependency parsing, as the YAML names it. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.validation import check_fields
from domainbert.encoders.config import Width
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.config_capabilities import Distillation, Evaluation, Recognising

if TYPE_CHECKING:
    from domainbert.labelled.file_sample import Sample
    from domainbert.tasks.recognition import Recognised

Decoding = Literal["mst", "greedy"]
DECODING = "domainbert_decode"  # key of config.json


@dataclass(frozen=True)
class ParsingFormat:
    """Reading of the labels of a file in CoNLL-U or CoNLL-X; the columns are where these formats have them."""

    subtypes: bool = True
    """Keep what stands behind a colon in a label (`nsubj:pass`). `false` keeps the universal part alone (`nsubj`),
    which is what the evaluation of CoNLL 2018 compares; `evaluate` then reads what models predict in the same way."""

    def read_label(self, label: str) -> str:
        """A label as it is read."""
        return label if self.subtypes else label.partition(":")[0]


class ParsingRecognising(Recognising["Parsing"]):
    """Files in ten columns: the first numbers the words, the seventh has their heads."""

    many_targets = True

    @override
    def recognise(self, kind: type[Parsing], sample: Sample) -> Recognised | None:
        from domainbert.tasks.recognition import Recognised

        rows = [columns for columns in sample.words if columns[0].isdecimal()]
        if not rows or len(rows[0]) != 10 or not all(columns[6].isdecimal() for columns in rows):
            return None
        return Recognised(kind(), "heads and labels in the ten columns of CoNLL-U", specificity=4)

    @override
    def adopts(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        return head == "biaffine"


class ParsingEvaluation(Evaluation):
    """Trees are decoded as in training."""

    @override
    def settings_from_model_config(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if DECODING not in fields:
            return {}
        decode, known = fields[DECODING], get_args(Decoding)
        if decode not in known:
            raise DomainbertError(f"{DECODING}: found {decode!r:.80}; expected {' or '.join(known)}")
        return {"decode": decode}


@dataclass(frozen=True)
class Parsing(TaskConfig):
    """Dependency trees: a head, or the root, for each word, and a label for the arc between them.

    >>> from domainbert import Parsing
    >>> Parsing().name, Parsing().headline.name
    ('parsing', 'LAS')
    """

    title = "Dependency parser"
    headline = Headline("las", "LAS")
    recognising = ParsingRecognising()
    distillation = Distillation(has_logits=False, shares_vocabulary=True)
    evaluation = ParsingEvaluation(scoring_settings=("by", "subtypes"))

    format: ParsingFormat = field(default_factory=ParsingFormat)
    """Reading of the labels."""

    decode: Decoding = "mst"
    """Algorithm that makes a tree of the scores, in validation and in `evaluate`; `predict` decodes as `finetune` was
    told. `mst` gives the best tree, with one root. `greedy` gives each word its best head, as SciBERT did: there may be
    cycles, and several roots or none."""

    arc_size: Width = 100
    """Width of the projections that arcs are scored with."""

    label_size: Width = 100
    """Width of the projections that labels are scored with."""

    def __post_init__(self) -> None:
        """Check the widths."""
        check_fields(self)

    @property
    @override
    def r_drop_unsupported(self) -> str:
        return "heads and labels of parsing are not outputs of a single softmax; expected no r_drop"

    @override
    def read_labels(self, labels: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.format.read_label, labels)))
