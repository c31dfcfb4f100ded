"""Decoding of the best answer spans from start and end logits."""

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
from domainbert.tasks.question_answering.encoding import CHAR_END, FIRST_CHAR

CLS = 0
"""Index of the output at [CLS], which is the first of each window."""


@dataclass(frozen=True)
class Spans:
    """The best answer spans of a context, with scores."""

    null_score: float
    """Score of no answer: start plus end at [CLS], the minimum over windows, as in the official script of BERT."""

    scores: FloatArray
    """(n,) start plus end logits, in descending order."""

    characters: NDArray[np.int64]
    """(n, 2) character ranges in the context, end exclusive."""

    @property
    def margin(self) -> float:
        """Return the score of no answer minus the best score; infinite without spans."""
        return self.null_score - float(self.scores[0]) if len(self.scores) else float("inf")


def window_indices(outputs: Tensor) -> Tensor:
    """Return the window index of each position (N,) of a batch; each window begins with [CLS]."""
    return (outputs == CLS).cumsum(0) - 1


def log_probabilities(logits: Tensor, window: Tensor) -> Tensor:
    """Return the log-softmax of logits (N, 2) within each window; `window` (N,): ascending indices of windows."""
    logits = logits.float()
    index = window.unsqueeze(1).expand_as(logits)
    largest = logits.new_full((int(window[-1]) + 1, 2), -torch.inf)
    largest = largest.scatter_reduce(0, index, logits.detach(), "amax")
    shifted = logits - largest[window]
    summed = torch.zeros_like(largest).index_add(0, window, shifted.exp())
    return shifted - summed.log()[window]


def best_spans(logits: Tensor, batch: Mapping[str, Any], max_pieces: int, count: int) -> list[Spans]:
    """Return the `count` best spans of at most `max_pieces` pieces for each example of a batch, over all windows.

    A span in several windows is scored once, in the window that maximises the smaller of its left and right context:
    the window with the nearest middle. The border is halfway between the end of a window and the start of the next.
    """
    values = logits.detach().double().cpu().numpy()
    outputs, owners, targets = (batch[name].cpu().numpy() for name in ("outputs", "example", "targets"))
    window_starts = np.flatnonzero(outputs == CLS)
    windows: list[list[slice]] = [[] for _ in range(len(batch["items"]))]
    for start, stop in pairwise([*window_starts.tolist(), len(outputs)]):
        windows[owners[start]].append(slice(start, stop))
    return [
        _best_in_context(
            [(values[positions], outputs[positions], targets[positions]) for positions in window_slices],
            max_pieces,
            count,
        )
        for window_slices in windows
    ]


def _best_in_context(
    windows: list[tuple[FloatArray, NDArray[Any], NDArray[Any]]], max_pieces: int, count: int
) -> Spans:
    """Return the best spans of a context; a window has logits (k, 2), outputs (k,) and targets (k, 4)."""
    null_score = min(float(logits[0].sum()) for logits, *_ in windows)
    # windows with pieces of the context after [CLS], in the order of their first piece
    windows = sorted((window for window in windows if len(window[1]) > 1), key=lambda window: int(window[1][1]))
    # doubled middles between the end of a window and the start of the next, to stay integers
    middles = [int(outputs[-1]) + int(following[1]) for (_, outputs, _), (_, following, _) in pairwise(windows)]
    scores, characters = [np.empty(0)], [np.empty((0, 2), dtype=np.int64)]
    bounds = zip([0, *middles], [*middles, np.inf], strict=True)
    for (logits, outputs, targets), (low, high) in zip(windows, bounds, strict=False):
        window_scores, starts, ends = _best_in_window(logits[1:], outputs[1:], max_pieces, count, low, high)
        scores.append(window_scores)
        characters.append(np.stack([targets[1 + starts, FIRST_CHAR], targets[1 + ends, CHAR_END]], axis=1))
    all_scores = np.concatenate(scores)
    order = np.argsort(-all_scores, kind="stable")[:count]
    return Spans(null_score, all_scores[order], np.concatenate(characters)[order])


def _best_in_window(
    logits: FloatArray, outputs: NDArray[Any], max_pieces: int, count: int, low: float, high: float
) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]:
    """Return the scores, starts and ends, each (n,), of the best spans of a window with low <= start + end < high.

    All spans are compared, while published scripts combine the 20 best starts and ends.
    """
    size, width = len(logits), min(max_pieces, len(logits))
    padded = np.concatenate([logits[:, 1], np.full(width - 1, -np.inf)])
    scores = logits[:, :1] + sliding_window_view(padded, width)  # (starts, lengths): start plus end logits
    ends = np.arange(size)[:, None] + np.arange(width)  # also of spans beyond the window, which are not allowed
    doubled_middles = outputs[:, None] + outputs[np.minimum(ends, size - 1)]
    allowed = np.flatnonzero((ends < size) & (doubled_middles >= low) & (doubled_middles < high))
    flat = scores.ravel()[allowed]
    best = allowed[np.argsort(-flat, kind="stable")[:count]]  # indices in the flattened scores
    return scores.ravel()[best], best // width, ends.ravel()[best]
