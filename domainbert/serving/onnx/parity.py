"""Compare the logits of an exported model with its torch model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.base.counter_random import random_bits
from domainbert.data.packing import IGNORE_INDEX, Example, Window

TOLERANCE = 1e-4
"""Maximum difference of fp32 logits, relative to the largest logit, or absolute if the largest logit is below 1."""

BUDGETS = (1, 512, 2_048)
"""Token budgets per batch: single texts without padding, several texts, and long with short texts."""

_NUM_TEXTS = 16


@dataclass(frozen=True)
class Difference:
    """Difference between the logits of two models."""

    largest: float
    """Maximum absolute difference; nan if any logit is nan."""
    scale: float
    """Maximum absolute logit of the first model."""

    @property
    def tolerable(self) -> bool:
        """Whether the difference is within `TOLERANCE`; False for nan."""
        return self.largest <= TOLERANCE * max(1.0, self.scale)


def random_texts(vocab_size: int, max_length: int) -> list[NDArray[np.int64]]:
    """Return random token ids (n,) for texts of many lengths n, from 1 to `max_length`, without special tokens."""
    lengths = np.unique(np.geomspace(1, max_length, _NUM_TEXTS).round().astype(np.int64))
    bits = [random_bits(0, index, np.arange(length)) for index, length in enumerate(lengths.tolist())]
    return [(text_bits % np.uint64(vocab_size)).astype(np.int64) for text_bits in bits]


def single_window_example(
    input_ids: Sequence[int] | NDArray[np.int64], at_cls: bool, max_length: int, extra: int
) -> Example:
    """Return an example with one window and no targets, which reads the logits at each token, or only at [CLS].

    `input_ids` (n,), without special tokens, is truncated to `max_length` tokens including `extra` special tokens.
    """
    ids = np.asarray(input_ids, dtype=np.int64)[: max_length - extra]
    positions = np.asarray([-1], dtype=np.int64) if at_cls else np.arange(len(ids))  # -1: [CLS], before the text
    targets = np.full(len(positions), IGNORE_INDEX, dtype=np.int64)
    window = Window(ids, positions, np.arange(len(positions)), targets, extra)
    return Example((window,), len(positions))


def first_window(example: Example) -> Example:
    """Return an example with only the first window of `example`, without targets."""
    window = example.windows[0]
    targets = np.full(len(window.positions), IGNORE_INDEX, dtype=np.int64)
    return Example((replace(window, targets=targets),), example.num_outputs)


def logits_by_item(batches: Iterable[tuple[dict[str, Any], Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """Yield the index of each example, and the logits (k, C) of C labels at its k predicted positions, on the CPU.

    The examples in `batches` have a single window.
    """
    for batch, logits in batches:
        for index, item in enumerate(batch["items"].tolist()):
            yield item, logits[batch["example"] == index].float().cpu()


def largest_difference(expected: dict[int, Tensor], exported: Iterable[Iterable[tuple[int, Tensor]]]) -> Difference:
    """Return the largest difference between the logits of the torch model (`expected`, by index of the example) and of
    the exported model: `logits_by_item` of the same examples, once for each token budget, consumed batch by batch."""
    differences: list[Tensor] = []
    for run in exported:
        difference_by_item = {item: (expected[item] - logits).abs().max() for item, logits in run}
        assert difference_by_item.keys() == expected.keys()
        differences += difference_by_item.values()
    scale = max(float(logits.abs().max()) for logits in expected.values())
    return Difference(float(torch.stack(differences).max()), scale)  # nan if any difference is nan
