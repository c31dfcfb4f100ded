"""Batches with the labelled items or contents that their examples come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from domainbert.data.batches import LabelledBatches, Share
from domainbert.data.packing import Batch, Example, collate
from domainbert.tasks.scoring import Scoring
from domainbert.tokenization.load import DomainTokenizer


class Sources:
    """What the examples of a batch were made from: a value that Lightning neither moves to a device nor changes.

    Attributes:
        items: labelled items, or contents to predict, in the order of the batch.
        name: file names of the set.
        slice_values: for the batches of a validation set, the values of the slices of the whole set.
        scoring: for the batches of a test set, the scoring of the whole set.
    """

    def __init__(
        self, items: Sequence[Any], name: str = "", slice_values: Sequence[str] = (), scoring: Any = None
    ) -> None:
        self.items, self.name, self.slice_values, self.scoring = items, name, slice_values, scoring


class WithSources(Dataset[Batch]):
    """Batches with `sources`: the labelled items of their examples, and facts of their set."""

    def __init__(self, batches: LabelledBatches, items: Sequence[Any], name: str, values: Sequence[str]) -> None:
        self.batches, self.items, self.name, self.values = batches, items, name, values

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Return batch `index`."""
        batch = self.batches[index]
        items = [self.items[item] for item in batch["items"].tolist()]
        return batch | {"sources": Sources(items, self.name, self.values)}


class ItemBatches(Dataset[Batch]):
    """Batches of `batch_size` labelled items or contents, in order, dealt to the ranks one by one.

    Args:
        items: labelled items, or contents to predict.
        encode: returns the examples of the items with some indices.
        tokenizer, batch_size, share: of the batches.
        scoring: scoring of a test set.

    Attributes:
        indices: indices of the items of each batch.
    """

    def __init__(
        self,
        items: Sequence[Any],
        encode: Callable[[Sequence[int]], list[Example]],
        tokenizer: DomainTokenizer,
        batch_size: int,
        share: Share,
        scoring: Scoring | None = None,
    ) -> None:
        self.items, self.encode, self.tokenizer, self.scoring = items, encode, tokenizer, scoring
        of_rank = np.arange(len(items))[share.rank :: share.world_size].tolist()
        self.indices = [of_rank[start : start + batch_size] for start in range(0, len(of_rank), batch_size)]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Batch:
        """Return batch `index`, with `sources`."""
        indices = self.indices[index]
        sources = Sources([self.items[item] for item in indices], scoring=self.scoring)
        return collate(self.encode(indices), indices, self.tokenizer) | {"sources": sources}
