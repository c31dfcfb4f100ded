"""Tasks that read each text as a whole: at [CLS], the windows of a long text averaged."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from domainbert.data.examples import Example, text_example
from domainbert.data.types import IGNORED
from domainbert.tasks.decoding import mean_over_windows
from domainbert.tasks.labelled import Content
from domainbert.tasks.labelled import Item as LabelledItem
from domainbert.tasks.task import Batch, Prediction, Task
from domainbert.tokenization.align import align_text
from domainbert.tokenization.load import DomainTokenizer

Item = TypeVar("Item", bound=LabelledItem)


class TextTask(Task[Item, Prediction]):
    """A task with a linear head on the pooled [CLS]."""

    head = "sequence"
    counted = "num_examples"

    @abstractmethod
    def target(self, item: Item) -> ArrayLike:
        """The target of a text's outputs in the loss: a number, or an array of one shape for all texts."""

    @property
    def unknown(self) -> ArrayLike:
        """The target of a text without labels, which the loss has to leave out."""
        return IGNORED

    def encode(self, items: Sequence[Item], tokenizer: DomainTokenizer, max_length: int) -> list[Example]:
        """See `Task.encode`."""
        return _encoded([item.content for item in items], [self.target(i) for i in items], tokenizer, max_length)

    def encode_contents(
        self, contents: Sequence[Content], tokenizer: DomainTokenizer, max_length: int
    ) -> list[Example]:
        """See `Task.encode_contents`; words are read with spaces between them."""
        return _encoded(contents, [self.unknown] * len(contents), tokenizer, max_length)

    def outputs(self, logits: Tensor, batch: Batch) -> Tensor:
        """Logits (E, C) of the texts: the mean over the windows of each."""
        return mean_over_windows(logits, batch)

    def targets(self, batch: Batch) -> Tensor:
        """The target of each text of a batch (E, ...); every window of a text has it."""
        found: Tensor = batch["targets"]
        return found.new_zeros(len(batch["items"]), *found.shape[1:]).index_copy(0, batch["example"], found)


def _encoded(
    contents: Sequence[Content], targets: Sequence[Any], tokenizer: DomainTokenizer, max_length: int
) -> list[Example]:
    texts = [content if isinstance(content, str) else " ".join(content) for content in contents]
    aligned = align_text(tokenizer, texts)
    return [text_example(words, np.asarray(target), max_length) for words, target in zip(aligned, targets, strict=True)]
