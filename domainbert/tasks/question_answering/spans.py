"""The best spans of contexts, from the logits of their starts and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from domainbert.metrics.counts import FloatArray
from domainbert.tasks.question_answering.encoding import BEHIND, FIRST

CLS = 0
"""The output at [CLS], with which each window begins."""


@dataclass(frozen=True)
class Spans:
    """The best spans of a context, and how well they answer."""

    null: float
    """Score of no answer: start and end at [CLS], the lowest of all windows, as in the official script of BERT."""

    scores: FloatArray
    """(n,) start and end added, the best first."""

    characters: NDArray[np.int64]
    """(n, 2) of the context, end exclusive."""

    @property
    def margin(self) -> float:
        """Margin of no answer over the best one; infinite where no piece can be one."""
        return self.null - float(self.scores[0]) if len(self.scores) else float("inf")


def window_numbers(outputs: Tensor) -> Tensor:
    """The window that each position (N,) of a batch belongs to: each begins with [CLS]."""
    return (outputs == CLS).cumsum(0) - 1


def log_probabilities(logits: Tensor, window: Tensor) -> Tensor:
    """Log-softmax of logits (N, 2) over the positions of each window (N,), or of each example, in ascending order."""
    logits = logits.float()
    each = window.unsqueeze(1).expand_as(logits)
    largest = logits.new_full((int(window[-1]) + 1, 2), -torch.inf)
    largest = largest.scatter_reduce(0, each, logits.detach(), "amax")
    shifted = logits - largest[window]
    summed = torch.zeros_like(largest).index_add(0, window, shifted.exp())
    return shifted - summed.log()[window]


def best_spans(logits: Tensor, batch: Mapping[str, Any], longest: int, most: int) -> list[Spans]:
    """The best spans for each example of a batch, at most `most` of at most `longest` pieces, over all windows.

    A span belongs to the window in which the side of it that has less context has the most, so it is scored once. That
    is the window whose middle is nearest to its own: half way between the end of one and the beginning of the next.
    """
    values = logits.detach().double().cpu().numpy()
    outputs, owners, targets = (batch[name].cpu().numpy() for name in ("outputs", "example", "targets"))
    begins = np.flatnonzero(outputs == CLS)
    windows: list[list[slice]] = [[] for _ in range(len(batch["items"]))]
    for start, stop in pairwise([*begins.tolist(), len(outputs)]):
        windows[owners[start]].append(slice(start, stop))
    return [_best([(values[at], outputs[at], targets[at]) for at in some], longest, most) for some in windows]


def _best(windows: list[tuple[FloatArray, NDArray[Any], NDArray[Any]]], longest: int, most: int) -> Spans:
    """The best spans of a context from its windows: logits (k, 2), outputs (k,) and targets (k, 4) of each."""
    null = min(float(logits[0].sum()) for logits, *_ in windows)
    read = sorted((one for one in windows if len(one[1]) > 1), key=lambda one: int(one[1][1]))
    middles = [int(one[1][-1]) + int(other[1][1]) for one, other in pairwise(read)]  # twice the place
    scores, characters = [np.empty(0)], [np.empty((0, 2), dtype=np.int64)]
    owned = zip([0, *middles], [*middles, np.inf], strict=True)
    for (logits, outputs, targets), (low, high) in zip(read, owned, strict=False):
        found, starts, ends = _of_window(logits[1:], outputs[1:], longest, most, low, high)
        scores.append(found)
        characters.append(np.stack([targets[1 + starts, FIRST], targets[1 + ends, BEHIND]], axis=1))
    together = np.concatenate(scores)
    order = np.argsort(-together, kind="stable")[:most]
    return Spans(null, together[order], np.concatenate(characters)[order])


def _of_window(
    logits: FloatArray, outputs: NDArray[Any], longest: int, most: int, low: float, high: float
) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]:
    """Scores of the best spans (n,) of a window, and the positions where they start and end; twice their middle is from
    `low` to below `high`. Unlike published scripts, which combine the 20 best starts and ends, all are compared."""
    size, width = len(logits), min(longest, len(logits))
    padded = np.concatenate([logits[:, 1], np.full(width - 1, -np.inf)])
    scores = logits[:, :1] + sliding_window_view(padded, width)  # (starts, lengths)
    ends = np.arange(size)[:, None] + np.arange(width)
    twice = outputs[:, None] + outputs[np.minimum(ends, size - 1)]
    allowed = np.flatnonzero((ends < size) & (twice >= low) & (twice < high))
    flat = scores.ravel()[allowed]
    best = allowed[np.argsort(-flat, kind="stable")[:most]]
    return scores.ravel()[best], best // width, ends.ravel()[best]
