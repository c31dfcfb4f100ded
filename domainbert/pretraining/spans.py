"""Selects spans of whole words to hide (Joshi et al. 2020, SpanBERT, section 3.1), vectorised over rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from domainbert.data.packing import Ints

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

LENGTHS: dict[str, NDArray[np.floating]] = {"geometric": 0.2 * 0.8 ** np.arange(10), "ngram": 1 / np.arange(1, 4)}
"""Weights of span lengths 1, 2, ...: SpanBERT's geometric distribution, truncated at ten words, and DeBERTa's
(`NGramMaskGenerator` in its code)."""


def span_lengths(distribution: str, uniforms: Floats) -> Ints:
    """Draw a span length in words for each number in [0, 1), of any shape."""
    sums = np.cumsum(LENGTHS[distribution])
    return np.searchsorted(sums[:-1] / sums[-1], uniforms, side="right") + 1


def choose_spans(starts: Bools, maskable: Bools, lengths: Ints, order: Ints, num_masked: Ints) -> Ints:
    """(R, S) start position of the span of each hidden token; -1 for tokens that are not hidden.

    A span ends after its number of words, before a token that is not maskable, before another span, or when enough
    tokens are hidden, even within a word. Exactly `num_masked[r]` tokens of row r are hidden.

    Args:
        starts: (R, S) whether a token begins a word.
        maskable: (R, S) whether a token may be hidden; each maskable stretch begins with a word.
        lengths: (R, S) length in words of a span that begins at a position.
        order: (R, S) positions of a row in the order in which spans are placed, word starts first; positions that are
            already hidden are skipped.
        num_masked: (R,) number of tokens to hide, at most the number of maskable tokens.
    """
    rows, columns = maskable.shape
    stops, firsts = _stops(starts, maskable, lengths), np.arange(rows) * (columns + 1)
    offsets = np.arange((stops - np.arange(stops.size)).max(initial=0))
    begins = np.full(stops.size + len(offsets), -1)
    left = num_masked.copy()
    for rank in range(columns):
        if not left.any():
            break
        first = firsts + order[:, rank]
        positions, room = first[:, None] + offsets, np.minimum(stops[first] - first, left)
        taken = np.logical_and.accumulate((begins[positions] < 0) & (offsets < room[:, None]), axis=1)
        sizes = taken.sum(axis=1)
        begins[positions[taken]] = np.repeat(order[:, rank], sizes)
        left -= sizes
    return begins[: stops.size].reshape(rows, columns + 1)[:, :columns]


def _stops(starts: Bools, maskable: Bools, lengths: Ints) -> Ints:
    """(R * (S + 1),) end, exclusive, of a span that begins at each position, ignoring other spans; 0 where no word
    begins. Positions are indices into flattened rows with one extra, unmaskable token (a wall) at the end."""

    wall = np.zeros((len(maskable), 1), dtype=np.bool_)
    walls = np.flatnonzero(~np.hstack([maskable, wall]))
    firsts = np.flatnonzero(np.hstack([starts, wall]))
    numbers = np.minimum(np.arange(len(firsts)) + lengths[starts], len(firsts))
    stops = np.zeros(maskable.size + len(maskable), dtype=np.int64)
    stops[firsts] = np.minimum(np.append(firsts, stops.size)[numbers], walls[np.searchsorted(walls, firsts)])
    return stops
