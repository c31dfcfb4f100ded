"""Base class of settings for tasks on whole texts or pairs of texts."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

from typing_extensions import override

from domainbert.base.errors import DomainbertError, format_names
from domainbert.encoders.config import Pooling
from domainbert.labelled.formats import RowFormat
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import TaskConfig


@dataclass(frozen=True)
class TextTaskConfig(TaskConfig):
    """Settings of a task on whole texts or pairs of texts; its `format` is a `RowFormat`."""

    mean_over: str | None = field(default=None, kw_only=True)
    """Key from `format.slice_keys`: the headline becomes the mean of the metric over the slices of this key."""

    pooling: Pooling | None = field(default=None, kw_only=True)
    """Pooling of the hidden states for the head: [CLS] (`cls`), or `mean` or `max` over all tokens. null takes the
    pooling of the model folder, or the default of the family: [CLS], for ModernBERT `classifier_pooling`.
    `transformers` ignores the setting and uses the default of the family."""

    def __post_init__(self) -> None:
        key, keys = self.mean_over, self.slice_keys
        if key is not None and key not in keys:
            expected = (
                f"expected one of {format_names(keys)}" if keys else "expected a key that format.slice_keys names"
            )
            raise DomainbertError(f"mean_over: found {key!r}; {expected}")

    @property
    @abstractmethod
    def whole(self) -> Headline:
        """Return the main metric over the whole set."""

    @property
    @override
    def headline(self) -> Headline:
        return self.whole.mean_over(self.mean_over)

    @property
    @override
    def reads_pairs(self) -> bool:
        return isinstance(self.reading, RowFormat) and self.reading.text_pair_key is not None
