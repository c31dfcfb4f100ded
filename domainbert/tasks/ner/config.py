"""Settings of named entity recognition. Free of torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from typing_extensions import Self, override

from domainbert.base.errors import DomainbertError, format_names
from domainbert.labelled.file_sample import Sample, tagged_sample
from domainbert.labelled.formats import ENTITY_KEYS, NerFormat
from domainbert.labelled.tag_schemes import entity_types, is_without_types
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import DetectedTask, Evaluation, FormatDetector, TaskConfig

_TAG = re.compile(r"O|[BIESLU]-\S.*")


class NerDetector(FormatDetector["Ner"]):
    """Files with tags or lists of entities, and exports of annotation tools."""

    many_targets = True

    @override
    def detect(self, kind: type[Ner], sample: Sample) -> DetectedTask | None:
        """Return the task for files with tags, rows with lists of entities, or an export; None for other files."""
        if (tagged := tagged_sample(sample)) is not None:
            has_typed_tags = not set(tagged.tags) <= {"O"} and all(map(_TAG.fullmatch, tagged.tags))
            if not has_typed_tags and not is_without_types(tagged.tags):
                return None
            format = NerFormat(**tagged.format_fields)
            return DetectedTask(kind(format=format), f"tags of entities {tagged.reason}", specificity=2)
        first_row = sample.rows[0] if sample.rows else {}
        keys = [key for key in ENTITY_KEYS if isinstance(first_row.get(key), list)]
        label_key = sample.options.get("label_key", "label")  # older exports of doccano have entities under "label"
        if _has_offsets(sample, label_key):
            keys.append(label_key)
        if keys and sample.kind == "jsonl":
            key = keys[0]
            text_key = sample.options.get("text_key", "text")
            format = NerFormat(text_key=text_key, entity_key=None if key in ENTITY_KEYS else key)
            return DetectedTask(kind(format=format), f"lists of entities under {key!r}", specificity=3)
        return DetectedTask(kind(), "an export of an annotation tool", specificity=3) if _is_export(sample) else None

    @override
    def with_repair(self, config: Ner) -> Ner | None:
        """Return the task with the first of these repairs that is not enabled; None if both are.

        `repair` reads invalid tags as conlleval does, `trim` removes white space at the ends of entities.
        """
        format = config.format
        if not format.repair:
            return replace(config, format=replace(format, repair=True))
        return None if format.trim else replace(config, format=replace(format, trim=True))

    @override
    def matches_model(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether labels have a tag-scheme prefix such as B-, unlike part-of-speech tags."""
        labels = fields.get("id2label", {}).values()
        return head in ("tokens", "crf") and any(label[1:2] == "-" for label in labels)


@dataclass(frozen=True)
class Ner(TaskConfig):
    """Named entity recognition: a tag for each word.

    >>> from domainbert import Ner
    >>> Ner().name, Ner().headline.name
    ('ner', 'entity F1')
    """

    title = "Token classifier"
    pipeline_tag = "token-classification"
    format_detector = NerDetector()
    evaluation = Evaluation(uses_training_set=True)
    no_labels = "no entities", "at least one (format.tag_column selects the column of the tags)"
    headline = Headline("f1", "entity F1")
    further = (Headline("macro_f1", "macro F1"), Headline("precision", "precision"), Headline("recall", "recall"))

    format: NerFormat = field(default_factory=NerFormat)
    """Columns, tag scheme and repair of the labelled files."""

    head: Literal["linear", "crf"] = "linear"
    """`crf` adds a CRF to the linear head, which scores pairs of adjacent tags; both predict valid IOB2. A CRF is
    better in domainbert, but `transformers` loads its folder without the CRF, with much worse scores."""

    scheme: Literal["IOB2", "BIOES"] = "IOB2"
    """Tag scheme of the model, independent of the files. BIOES has separate tags for the last word of an entity and
    for an entity of one word; `transformers` groups only IOB2 into entities."""

    @override
    def check_labels(self, labels: Collection[str]) -> None:
        """Raise `DomainbertError` if `format.types` names no entity type of the training set."""
        if self.format.types is not None and not any(map(self.format.keeps, labels)):
            found = f"{format_names(self.format.types)}, but no entity of the training set has such a type"
            expected = "a type that occurs, or null for all types"
            raise DomainbertError(where="format.types", found=found, expected=expected)

    @override
    def as_teacher(self) -> Self:
        """Return the task with a CRF, which is the better tagger: its marginals can teach a linear head."""
        return replace(self, head="crf")

    def known_labels(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """Return the entity types of a model's tags."""
        return tuple(entity_types(outputs))


def _has_offsets(sample: Sample, key: str) -> bool:
    lists = (row[key] for row in sample.rows if isinstance(row.get(key), list))
    # [start, end, label]
    return any(isinstance(item, list) and len(item) == 3 for items in lists for item in items)


def _is_export(sample: Sample) -> bool:
    """Whether a sample is a brat folder, or a JSON list of spaCy or Label Studio."""
    if sample.kind == "folder":
        return any(sample.path.glob("*.ann"))
    first_value = sample.value[0] if isinstance(sample.value, list) and sample.value else None
    if isinstance(first_value, list):  # spaCy: [text, {"entities": [...]}]
        return len(first_value) == 2 and isinstance(first_value[0], str) and isinstance(first_value[1], dict)
    return isinstance(first_value, dict) and any(
        isinstance(first_value.get(key), list) for key in (*ENTITY_KEYS, "annotations")
    )
