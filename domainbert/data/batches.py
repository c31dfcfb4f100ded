"""Batches of labelled examples. A training batch is a pure function of (seed, step), divided between ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch.utils.data import DataLoader, Dataset

from domainbert.data.examples import Example, collate, text_example
from domainbert.data.order import GlobalOrder
from domainbert.data.types import IGNORE_INDEX, Batch, Share
from domainbert.tokenization.align import align_text
from domainbert.tokenization.load import DomainTokenizer


class LabelledTrainBatches(Dataset[Batch]):
    """Micro-batches of this rank, with whole examples packed in rows.

    Args:
        examples: the training set.
        tokenizer: tokenizer of the examples.
        order: assigns examples to optimiser steps.
        share: rank and number of micro-batches.
        steps: optimiser steps of the batches, numbered from 0; a resumed training does not begin with 0.
    """

    def __init__(
        self, examples: Sequence[Example], tokenizer: DomainTokenizer, order: GlobalOrder, share: Share, steps: range
    ) -> None:
        self.examples, self.tokenizer = examples, tokenizer
        self.order, self.share, self.steps = order, share, steps
        self._num_targets = np.asarray([sum(len(window.targets) for window in item.windows) for item in examples])

    def __len__(self) -> int:
        """Return the number of micro-batches of all steps."""
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        """Return micro-batch `index` from `collate`, with `step`, `micro_batch`, and `num_examples` and `num_targets`
        of the *global* batch."""
        step, micro_batch = self.steps[index // self.share.accumulation], index % self.share.accumulation
        global_batch = self.order.batch(step)[1]
        items = self.share.select(global_batch, micro_batch).tolist()
        targets = int(self._num_targets[global_batch].sum())
        global_indices = self.share.indices(len(global_batch), micro_batch)
        batch = collate([self.examples[i] for i in items], items, self.tokenizer, global_indices)
        counts = {"num_examples": len(global_batch), "num_targets": targets}
        return batch | counts | {"step": step, "micro_batch": micro_batch}


class LabelledBatches(Dataset[Batch]):
    """Batches of all examples once, divided between ranks, longest first; at most `max_tokens` tokens in a batch,
    unless a single example has more."""

    def __init__(self, examples: Sequence[Example], tokenizer: DomainTokenizer, max_tokens: int, share: Share) -> None:
        by_length = sorted(range(len(examples)), key=lambda i: (-examples[i].num_tokens, i))
        self.examples, self.tokenizer = examples, tokenizer
        self.batches = _split_by_tokens(by_length[share.rank :: share.world_size], examples, max_tokens)

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Return batch `index`."""
        items = self.batches[index]
        return collate([self.examples[i] for i in items], items, self.tokenizer)


class TextBatches(Dataset[Batch]):
    """Batches of `batch_size` texts in order, dealt to the ranks one by one; each text is tokenized when it is read."""

    def __init__(
        self, texts: Sequence[str], tokenizer: DomainTokenizer, max_length: int, batch_size: int, share: Share
    ) -> None:
        self.texts, self.tokenizer, self.max_length = texts, tokenizer, max_length
        items_of_rank = np.arange(len(texts))[share.rank :: share.world_size].tolist()
        self.batches = [items_of_rank[start : start + batch_size] for start in range(0, len(items_of_rank), batch_size)]

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Return batch `index`."""
        items = self.batches[index]
        aligned = align_text(self.tokenizer, [self.texts[item] for item in items])
        return collate([text_example(words, IGNORE_INDEX, self.max_length) for words in aligned], items, self.tokenizer)


def packed_loader(
    texts: Sequence[str],
    tokenizer: DomainTokenizer,
    max_length: int = 512,
    batch_tokens: int = 8192,
    num_workers: int = 0,
) -> DataLoader[Batch]:
    """Return a DataLoader of packed batches of texts: several texts per row, without padding between them.

    A batch has `input_ids`, `position_ids` and `segment_ids` (rows, length), the inputs of `Packed.of`; `items`
    (texts,), the indices of its texts; `positions` (windows,), the index of the [CLS] of each window in the flattened
    tokens; and `example` (windows,), the index of the text of each window in `items`.

    >>> from domainbert import packed_loader, train_tokenizer
    >>> texts = ["The court of appeal.", "Courts of law.", "The high court and the lower courts."]
    >>> tokenizer = train_tokenizer(texts, vocab_size=128, min_frequency=1)
    >>> (batch,) = packed_loader(texts, tokenizer)
    >>> batch["input_ids"].shape[0], batch["items"].tolist()  # one row; the longest text comes first
    (1, [2, 0, 1])

    Args:
        texts: texts longer than `max_length` are read in overlapping windows.
        tokenizer: tokenizer of the encoder.
        max_length: maximum tokens of a window, special tokens included.
        batch_tokens: maximum tokens of a batch, unless a single text has more.
        num_workers: processes that build batches.
    """
    examples = [text_example(words, IGNORE_INDEX, max_length) for words in align_text(tokenizer, list(texts))]
    batches = LabelledBatches(examples, tokenizer, batch_tokens, Share())
    return DataLoader(batches, batch_size=None, num_workers=num_workers)


def _split_by_tokens(items: Sequence[int], examples: Sequence[Example], max_tokens: int) -> list[list[int]]:
    """Return the items (indices of examples) of each batch, in order."""
    batches: list[list[int]] = []
    num_tokens = max_tokens  # so that the first item begins a batch
    for item in items:
        num_tokens += examples[item].num_tokens
        if num_tokens > max_tokens:
            batches.append([])
            num_tokens = examples[item].num_tokens
        batches[-1].append(item)
    return batches
