"""Whether an exported model says what its torch model says."""

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
from domainbert.data.types import IGNORED

TOLERANCE = 1e-4
"""Largest difference of logits that fp32 may make, as a share of the largest logit, or by itself if that is below 1."""

BUDGETS = (1, 512, 2_048)
"""Tokens of a batch: every text alone without padding, several, and long beside short."""

_NUM_TEXTS = 16


@dataclass(frozen=True)
class Difference:
    """The largest absolute difference of the logits of two models, and the largest absolute logit of the first."""

    largest: float
    scale: float

    @property
    def tolerable(self) -> bool:
        """Whether it is rounding; not a number is none."""
        return self.largest <= TOLERANCE * max(1.0, self.scale)


def made_up_texts(vocab_size: int, room: int) -> list[NDArray[np.int64]]:
    """Token ids (n,) of texts of many lengths, from one token to `room`, special ones apart; any entry may occur."""
    lengths = np.unique(np.geomspace(1, room, _NUM_TEXTS).round().astype(np.int64))
    bits = [random_bits(0, number, np.arange(length)) for number, length in enumerate(lengths.tolist())]
    return [(one % np.uint64(vocab_size)).astype(np.int64) for one in bits]


def whole_example(input_ids: Sequence[int] | NDArray[np.int64], at_cls: bool, max_length: int, extra: int) -> Example:
    """A text (n,), cut at `max_length`, of which every piece is read, or only the special token before it (`at_cls`).

    `max_length` includes `extra` special tokens, `input_ids` have none.
    """
    ids = np.asarray(input_ids, dtype=np.int64)[: max_length - extra]
    positions = np.asarray([-1], dtype=np.int64) if at_cls else np.arange(len(ids))
    targets = np.full(len(positions), IGNORED, dtype=np.int64)
    window = Window(ids, positions, np.arange(len(positions)), targets, extra)
    return Example((window,), len(positions))


def first_window(example: Example) -> Example:
    """The first window of an example, with nothing to compare its outputs with."""
    window = example.windows[0]
    targets = np.full(len(window.positions), IGNORED, dtype=np.int64)
    return Example((replace(window, targets=targets),), example.num_outputs)


def by_item(batches: Iterable[tuple[dict[str, Any], Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """The number of each example, and its logits (k, C); examples have one window."""
    for batch, logits in batches:
        for place, item in enumerate(batch["items"].tolist()):
            yield item, logits[batch["example"] == place].float().cpu()


def largest_difference(wanted: dict[int, Tensor], found: Iterable[Iterable[tuple[int, Tensor]]]) -> Difference:
    """Difference of logits by item from those `wanted`, of the torch model.

    `found` are those of the exported one, once for each way of making batches, the same items; no more than those of a
    batch are held in memory.
    """
    apart: list[Tensor] = []
    for one in found:
        differences = {item: (wanted[item] - logits).abs().max() for item, logits in one}
        assert differences.keys() == wanted.keys()
        apart += differences.values()
    scale = max(float(logits.abs().max()) for logits in wanted.values())
    return Difference(float(torch.stack(apart).max()), scale)  # the maximum is nan if one is
