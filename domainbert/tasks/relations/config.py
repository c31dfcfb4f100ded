"""Settings of relation classification. Free of torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError, format_names
from domainbert.labelled.file_sample import Sample
from domainbert.labelled.formats import TextFormat
from domainbert.labelled.infer_columns import row_keys
from domainbert.labelled.row_values import is_visible
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import DetectedTask, Distillation, FormatDetector, NullLabelEvaluation, TaskConfig

_MIN_MARKED = 0.95  # minimum share of texts with two entities; the strict reader reports the others
_OUTPUT_SUFFIXES = (" at head", " at tail")


def outputs_at_starts(classes: Sequence[str]) -> tuple[str, ...]:
    """Return two output names per class: first of all classes at the head, then of all classes at the tail.

    >>> outputs_at_starts(["part-of", "used-for"])
    ('part-of at head', 'used-for at head', 'part-of at tail', 'used-for at tail')
    """
    return tuple(label + suffix for suffix in _OUTPUT_SUFFIXES for label in classes)


def classes_of(outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of a model from the names of its outputs.

    If the names are those of `outputs_at_starts`, each class has two outputs; otherwise each output is a class.
    """
    classes = tuple(name.removesuffix(_OUTPUT_SUFFIXES[0]) for name in outputs[: len(outputs) // 2])
    has_two_outputs_per_class = bool(classes) and outputs_at_starts(classes) == tuple(outputs)
    return classes if has_two_outputs_per_class else tuple(outputs)


@dataclass(frozen=True)
class RelationFormat(TextFormat):
    """Columns of text, entities and relation in a JSONL, CSV or TSV file."""

    head_key: str = "head"
    """Key in JSONL of the first entity (argument): an object with character offsets `start` and `end`, end exclusive. A
    row without keys for entities has markers around them in its text."""

    tail_key: str = "tail"
    """Key of the second entity."""

    head_markers: tuple[str, str] = ("<<", ">>")
    """Markers before and after the first entity in the text. The task inserts them around entities that are given by
    character offsets."""

    tail_markers: tuple[str, str] = ("[[", "]]")
    """Markers before and after the second entity."""

    def has_entities(self, row: Mapping[str, Any]) -> bool:
        """Whether a row seems to contain two entities: two objects, or each of the four markers once in the text."""
        are_objects = [isinstance(row.get(key), dict) for key in (self.head_key, self.tail_key)]
        text = str(row.get(self.text_key))
        return all(are_objects) or all(text.count(marker) == 1 for marker in self.markers)

    @property
    def markers(self) -> tuple[str, ...]:
        """Return four markers: before and after the head, before and after the tail."""
        return (*self.head_markers, *self.tail_markers)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_pair_key is not None:
            raise DomainbertError(
                where="text_pair_key", found=repr(self.text_pair_key), expected="null: both entities are in one text"
            )
        markers = self.markers
        has_nested = any(marker in other for marker, other in permutations(markers, 2))
        if has_nested or not all(is_visible(marker) for marker in markers):
            raise DomainbertError(
                where="head_markers, tail_markers",
                found=" ".join(map(repr, markers)),
                expected="four visible strings that do not contain each other",
            )


class RelationsDetector(FormatDetector["Relations"]):
    """Detects files with two entities in each text, given by offsets or the default markers."""

    whole_texts = True

    @override
    def detect(self, kind: type[Relations], sample: Sample) -> DetectedTask | None:
        keys = row_keys(sample)
        if keys is None or not keys.labels.may_be_classes:
            return None
        format = RelationFormat(text_key=keys.text, label_key=keys.labels.key, quoting=sample.quoting)
        if sum(format.has_entities(row) for row in sample.rows) < _MIN_MARKED * len(sample.rows):
            return None
        reason = f"two entities marked in each text under {keys.text!r}, {keys.labels.num_distinct} relations"
        return DetectedTask(kind(format=format), f"{reason} under {keys.labels.key!r}", specificity=2)


@dataclass(frozen=True)
class Relations(TaskConfig):
    """Relation classification: one of several relations between two entities of a text.

    >>> from domainbert import Relations
    >>> Relations().name, Relations().headline.name
    ('relations', 'macro F1')
    """

    title = "Relation classifier"
    pipeline_tag = "text-classification"
    format_detector = RelationsDetector()
    evaluation = NullLabelEvaluation(training_settings=("negative",))
    distillation = Distillation(unlabelled_unsupported="text without labels has no entities")

    format: RelationFormat = field(default_factory=RelationFormat)
    """Keys and markers of the labelled files."""

    markers: Literal["text", "tokens"] = "text"
    """Markers that the model reads around the entities: `text` uses the markers of the format as plain text; `tokens`
    adds four entries to the vocabulary."""

    head: Literal["cls", "starts"] = "cls"
    """Input of the head: `cls` reads the pooled [CLS]; `starts` the concatenated states of the two markers before the
    entities (Baldini Soares et al. 2019, arXiv:1906.03158, section 3.2)."""

    metric: Literal["micro", "macro"] | None = None
    """The F1 of the headline. None takes micro F1 if there is a `negative` label; otherwise macro F1, as micro F1 over
    all classes is the accuracy."""

    negative: str | None = None
    """Label of no relation, if there is one; F1 excludes it."""

    @property
    @override
    def headline(self) -> Headline:
        metric = self.metric or ("macro" if self.negative is None else "micro")
        return Headline(f"{metric}_f1", f"{metric} F1")

    @override
    def check_labels(self, labels: Collection[str]) -> None:
        """Raise `DomainbertError` if training has no label `negative`."""
        if self.negative is not None and self.negative not in labels:
            expected = f"null or a label of the training set: {format_names(sorted(labels))}"
            raise DomainbertError(where="negative", found=repr(self.negative), expected=expected)

    def known_labels(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """Return the relations of a model's outputs."""
        return classes_of(outputs)
