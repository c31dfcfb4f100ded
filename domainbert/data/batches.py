"""Batches of labelled examples as a pure function of (seed, step), sliced by rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch.utils.data import Dataset

from domainbert.data.examples import Example, collate
from domainbert.data.order import GlobalOrder
from domainbert.data.types import Batch, Share
from domainbert.tokenization.load import DomainTokenizer


class LabelledTrainBatches(Dataset[Batch]):
    """Micro-batch i of fine-tuning: whole examples, packed, of this rank's share. The order says which examples belong
    to which optimiser step. These are numbered from 0; a resumed training begins further on."""

    def __init__(
        self, examples: Sequence[Example], tokenizer: DomainTokenizer, order: GlobalOrder, share: Share, steps: range
    ) -> None:
        self.examples, self.tokenizer = examples, tokenizer
        self.order, self.share, self.steps = order, share, steps
        self._num_targets = np.asarray([sum(len(window.targets) for window in one.windows) for one in examples])

    def __len__(self) -> int:
        """Micro-batches of all the steps."""
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        """Micro-batch `index`, as `collate` makes it: `step` and `micro_batch` say which; `num_examples` and
        `num_targets` are those of the *global* batch."""
        step, micro_batch = self.steps[index // self.share.accumulation], index % self.share.accumulation
        everything = self.order.batch(step)[1]
        items = self.share.of(everything, micro_batch).tolist()
        targets = int(self._num_targets[everything].sum())
        places = self.share.places(len(everything), micro_batch)
        batch = collate([self.examples[i] for i in items], items, self.tokenizer, places)
        counts = {"num_examples": len(everything), "num_targets": targets}
        return batch | counts | {"step": step, "micro_batch": micro_batch}


class LabelledBatches(Dataset[Batch]):
    """Every example once over all ranks, longest first, in batches of at most `max_tokens` tokens."""

    def __init__(self, examples: Sequence[Example], tokenizer: DomainTokenizer, max_tokens: int, share: Share) -> None:
        by_length = sorted(range(len(examples)), key=lambda i: (-examples[i].num_tokens, i))
        self.examples, self.tokenizer = examples, tokenizer
        self.batches = _by_budget(by_length[share.rank :: share.world_size], examples, max_tokens)

    def __len__(self) -> int:
        """Batches of this rank."""
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Batch `index`."""
        items = self.batches[index]
        return collate([self.examples[i] for i in items], items, self.tokenizer)


def _by_budget(items: Sequence[int], examples: Sequence[Example], max_tokens: int) -> list[list[int]]:
    batches: list[list[int]] = []
    used = max_tokens
    for item in items:
        used += examples[item].num_tokens
        if used > max_tokens:
            batches.append([])
            used = examples[item].num_tokens
        batches[-1].append(item)
    return batches
