"""Spans of whole words to hide (Joshi et al. 2020, SpanBERT, section 3.1), vectorised over rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from domainbert.data.packing import Ints

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

LENGTHS: dict[str, NDArray[np.floating]] = {"geometric": 0.2 * 0.8 ** np.arange(10), "ngram": 1 / np.arange(1, 4)}
"""Weights of the lengths of a span, from one word on: SpanBERT's, a geometric distribution that ends at ten words, and
those of DeBERTa's masked LM (`NGramMaskGenerator` in its code)."""


def span_lengths(kind: str, uniforms: Floats) -> Ints:
    """Lengths in words, each drawn by one number in [0, 1); of any shape."""
    sums = np.cumsum(LENGTHS[kind])
    return np.searchsorted(sums[:-1] / sums[-1], uniforms, side="right") + 1


def choose_spans(starts: Bools, maskable: Bools, lengths: Ints, order: Ints, wanted: Ints) -> Ints:
    """The place at which the span of each token to hide begins, -1 where a token is not hidden: (R, S).

    A span ends after its number of words, at the end of the text or before a token that may not be hidden, before
    another span, and where enough is hidden, be it within a word. Exactly `wanted[r]` tokens of a row are hidden.

    Args:
        starts: (R, S) tokens that begin a word.
        maskable: (R, S) tokens that may be hidden; each stretch of them begins with a word.
        lengths: (R, S) in words, of the span that begins there.
        order: (R, S) places of a row, first those of words, in the order in which spans begin there; a place that is
            hidden by then is passed over.
        wanted: (R,) no more than there are maskable tokens.
    """
    rows, columns = maskable.shape
    stops, firsts = _stops(starts, maskable, lengths), np.arange(rows) * (columns + 1)
    offsets = np.arange((stops - np.arange(stops.size)).max(initial=0))
    begins = np.full(stops.size + len(offsets), -1)
    left = wanted.copy()
    for rank in range(columns):
        if not left.any():
            break
        first = firsts + order[:, rank]
        places, room = first[:, None] + offsets, np.minimum(stops[first] - first, left)
        taken = np.logical_and.accumulate((begins[places] < 0) & (offsets < room[:, None]), axis=1)
        sizes = taken.sum(axis=1)
        begins[places[taken]] = np.repeat(order[:, rank], sizes)
        left -= sizes
    return begins[: stops.size].reshape(rows, columns + 1)[:, :columns]


def _stops(starts: Bools, maskable: Bools, lengths: Ints) -> Ints:
    """Behind which token a span that begins at a place ends, were it alone, 0 where no word begins; both places count
    through rows that are one token longer, with a wall at the end: (R * (S + 1),)."""
    wall = np.zeros((len(maskable), 1), dtype=np.bool_)
    walls = np.flatnonzero(~np.hstack([maskable, wall]))
    firsts = np.flatnonzero(np.hstack([starts, wall]))
    numbers = np.minimum(np.arange(len(firsts)) + lengths[starts], len(firsts))
    stops = np.zeros(maskable.size + len(maskable), dtype=np.int64)
    stops[firsts] = np.minimum(np.append(firsts, stops.size)[numbers], walls[np.searchsorted(walls, firsts)])
    return stops
