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
from domainbert.data.examples import Example, Window
from domainbert.data.types import IGNORE_INDEX

TOLERANCE = 1e-4
"""Maximum difference of fp32 logits, relative to the largest logit, or absolute if the largest logit is below 1."""

BUDGETS = (1, 512, 2_048)
"""Token budgets per batch: single texts without padding, several texts, and long with short texts."""

_NUM_TEXTS = 16


@dataclass(frozen=True)
class Difference:
    """Maximum absolute difference of the logits of two models, and maximum absolute logit of the first model."""

    largest: float
    scale: float

    @property
    def tolerable(self) -> bool:
        """Whether the difference is within rounding; False for nan."""
        return self.largest <= TOLERANCE * max(1.0, self.scale)


def made_up_texts(vocab_size: int, room: int) -> list[NDArray[np.int64]]:
    """Return random token ids (n,) for texts of many lengths n, from 1 to `room`, without special tokens."""
    lengths = np.unique(np.geomspace(1, room, _NUM_TEXTS).round().astype(np.int64))
    bits = [random_bits(0, number, np.arange(length)) for number, length in enumerate(lengths.tolist())]
    return [(numbers % np.uint64(vocab_size)).astype(np.int64) for numbers in bits]


def whole_example(input_ids: Sequence[int] | NDArray[np.int64], at_cls: bool, max_length: int, extra: int) -> Example:
    """Return an example that reads every position of a text (n,), or only [CLS] if `at_cls`.

    The text is truncated to `max_length`, which includes `extra` special tokens; `input_ids` has no special tokens.
    """
    ids = np.asarray(input_ids, dtype=np.int64)[: max_length - extra]
    positions = np.asarray([-1], dtype=np.int64) if at_cls else np.arange(len(ids))
    targets = np.full(len(positions), IGNORE_INDEX, dtype=np.int64)
    window = Window(ids, positions, np.arange(len(positions)), targets, extra)
    return Example((window,), len(positions))


def first_window(example: Example) -> Example:
    """Return the first window of an example, without targets."""
    window = example.windows[0]
    targets = np.full(len(window.positions), IGNORE_INDEX, dtype=np.int64)
    return Example((replace(window, targets=targets),), example.num_outputs)


def by_item(batches: Iterable[tuple[dict[str, Any], Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of each example with its logits (k, C); examples have a single window."""
    for batch, logits in batches:
        for index, item in enumerate(batch["items"].tolist()):
            yield item, logits[batch["example"] == index].float().cpu()


def largest_difference(expected: dict[int, Tensor], exported: Iterable[Iterable[tuple[int, Tensor]]]) -> Difference:
    """Compare the logits of the torch model (`expected`, by item) with the exported model.

    `exported` has the logits of the same items once for each token budget. They are consumed batch by batch.
    """
    differences: list[Tensor] = []
    for run in exported:
        by_number = {item: (expected[item] - logits).abs().max() for item, logits in run}
        assert by_number.keys() == expected.keys()
        differences += by_number.values()
    scale = max(float(logits.abs().max()) for logits in expected.values())
    return Difference(float(torch.stack(differences).max()), scale)  # nan if any difference is nan
