"""Batches of labelled examples as a pure function of (seed, step), sliced by rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch.utils.data import DataLoader, Dataset

from domainbert.data.examples import Example, collate, text_example
from domainbert.data.order import GlobalOrder
from domainbert.data.types import IGNORED, Batch, Share
from domainbert.tokenization.align import align_text
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


def packed_loader(
    texts: Sequence[str],
    tokenizer: DomainTokenizer,
    max_length: int = 512,
    batch_tokens: int = 8192,
    num_workers: int = 0,
) -> DataLoader[Batch]:
    """Packed batches of texts: several texts back to back in a row, without padding between them.

    A batch has `input_ids`, `position_ids` and `segment_ids` (rows, length), which `Packed.of` takes for an encoder;
    `items` (texts,), the numbers of its texts; `positions` (windows,), where the flattened tokens have the [CLS] of
    each window, and `example` (windows,), the text in `items` that the window is of.

    >>> from domainbert import packed_loader, train_tokenizer
    >>> texts = ["The court of appeal.", "Courts of law.", "The high court and the lower courts."]
    >>> tokenizer = train_tokenizer(texts, vocab_size=128, min_frequency=1)
    >>> (batch,) = packed_loader(texts, tokenizer)
    >>> batch["input_ids"].shape[0], batch["items"].tolist()  # one row; the longest text comes first
    (1, [2, 0, 1])

    Args:
        texts: longer ones are read in overlapping windows.
        tokenizer: the encoder's.
        max_length: tokens of a window, special tokens included.
        batch_tokens: tokens of a batch at most, unless a single text has more.
        num_workers: processes that build batches.
    """
    words = align_text(tokenizer, list(texts))
    examples = [text_example(one, IGNORED, max_length) for one in words]
    batches = LabelledBatches(examples, tokenizer, batch_tokens, Share())
    return DataLoader(batches, batch_size=None, num_workers=num_workers)


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
