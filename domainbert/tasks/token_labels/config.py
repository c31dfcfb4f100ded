"""Settings of token classification. Free of torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError, format_names
from domainbert.labelled.file_sample import Sample, tagged_sample
from domainbert.labelled.formats import TaggedFormat
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import DetectedTask, FormatDetector, NullLabelEvaluation, TaskConfig

_MAX_LABELS = 200
_DEFAULT_OUTSIDE = "O"


class TokenLabelsDetector(FormatDetector["TokenLabels"]):
    """Detects files with any tags; preferred to `Ner` if no tag begins an entity, as in EBM-NLP."""

    many_targets = True

    @override
    def detect(self, kind: type[TokenLabels], sample: Sample) -> DetectedTask | None:
        """Return the task for a file with a column of 2 to `_MAX_LABELS` labels, otherwise None.

        The match is more specific if no label begins an entity.
        """
        tagged = tagged_sample(sample)
        labels = set(tagged.tags) if tagged else set()
        if tagged is None or not 2 <= len(labels) <= _MAX_LABELS:
            return None
        if 2 * len(labels) > len(tagged.tags):  # a column of words, which hardly repeat
            return None
        is_without_types = {"B"} <= labels <= set("BIESLUO")  # prefixes of entities without types
        begins_entity = is_without_types or any(label[:2] in ("B-", "S-", "U-") for label in labels)
        outside = _DEFAULT_OUTSIDE if _DEFAULT_OUTSIDE in labels else None
        reason = f"{len(labels)} labels of words {tagged.reason}" + ("" if begins_entity else ", none with B-")
        task = kind(format=TaggedFormat(**tagged.format_fields), outside=outside)
        return DetectedTask(task, reason, specificity=1 if begins_entity else 3)


@dataclass(frozen=True)
class TokenLabels(TaskConfig):
    """Token classification: a label per word, scored by word; a prefix such as I- has no meaning.

    >>> from domainbert import TokenLabels
    >>> TokenLabels().name, TokenLabels().headline.name
    ('token_labels', 'mean token F1')
    """

    title = "Token classifier"
    pipeline_tag = "token-classification"
    headline = Headline("macro_f1", "mean token F1")
    format_detector = TokenLabelsDetector()
    evaluation = NullLabelEvaluation(training_settings=("outside",))

    format: TaggedFormat = field(default_factory=TaggedFormat)
    """Columns of the labelled files."""

    outside: str | None = "O"
    """Negative label, which F1 excludes. null if all labels are scored, such as parts of speech."""

    head: Literal["linear", "crf"] = "linear"
    """`crf` adds a CRF to the linear head, which scores pairs of adjacent labels; `transformers` loads the folder
    without the CRF."""

    @override
    def check_labels(self, labels: Collection[str]) -> None:
        """Raise `DomainbertError` if no training word has the label `outside`."""
        if self.outside is not None and self.outside not in labels:
            expected = f"null or a label of the training set: {format_names(sorted(labels))}"
            raise DomainbertError(where="outside", found=repr(self.outside), expected=expected)
