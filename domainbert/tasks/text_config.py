"""Settings of a task that reads each text, or pair of texts, as a whole."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

from typing_extensions import override

from domainbert.base.errors import DomainbertError, listed
from domainbert.encoders.head_config import Pooling
from domainbert.labelled.formats import RowFormat
from domainbert.metrics.headline import Headline
from domainbert.tasks.config import TaskConfig


@dataclass(frozen=True)
class TextTaskConfig(TaskConfig):
    """Settings of a task that reads each text, or pair of texts, as a whole; its `format` is a `RowFormat`."""

    mean_over: str | None = field(default=None, kw_only=True)
    """One of `by` of the format: the mean of the metric that counts over its slices takes its place."""

    pooling: Pooling | None = field(default=None, kw_only=True)
    """State of a text that the head reads: of [CLS] (`cls`), or the `mean` or `max` of all tokens. null is that of the
    model folder, or the family's own: [CLS] but for ModernBERT's `classifier_pooling`. `transformers` does not know the
    setting, and reads the family's own."""

    def __post_init__(self) -> None:
        """Check the key of the mean."""
        key, keys = self.mean_over, self.by
        if key is not None and key not in keys:
            expected = f"expected one of {listed(keys)}" if keys else "expected a key that format.by names"
            raise DomainbertError(f"mean_over: found {key!r}; {expected}")

    @property
    @abstractmethod
    def whole(self) -> Headline:
        """The metric that counts, over the whole set."""

    @property
    def headline(self) -> Headline:
        """The metric that counts, or its mean over slices."""
        return self.whole.mean_over(self.mean_over)

    @property
    @override
    def reads_pairs(self) -> bool:
        return isinstance(self.reading, RowFormat) and self.reading.text_pair_key is not None
