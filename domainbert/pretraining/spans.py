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
    """Return a span length in words for each number in [0, 1), of any shape, by inverting the distribution function."""
    sums = np.cumsum(LENGTHS[distribution])
    return np.searchsorted(sums[:-1] / sums[-1], uniforms, side="right") + 1  # index 0 is length 1


def choose_spans(starts: Bools, maskable: Bools, lengths: Ints, order: Ints, num_masked: Ints) -> Ints:
    """Choose spans to hide; return the start of the span of each hidden token, and -1 for other tokens: (R, S).

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
    ends, row_starts = _span_ends(starts, maskable, lengths), np.arange(rows) * (columns + 1)
    offsets = np.arange((ends - np.arange(ends.size)).max(initial=0))
    span_starts = np.full(ends.size + len(offsets), -1)  # offsets may extend beyond the last row
    remaining = num_masked.copy()
    for rank in range(columns):
        if not remaining.any():
            break
        start = row_starts + order[:, rank]
        positions, room = start[:, None] + offsets, np.minimum(ends[start] - start, remaining)
        newly_hidden = np.logical_and.accumulate((span_starts[positions] < 0) & (offsets < room[:, None]), axis=1)
        sizes = newly_hidden.sum(axis=1)
        span_starts[positions[newly_hidden]] = np.repeat(order[:, rank], sizes)
        remaining -= sizes
    return span_starts[: ends.size].reshape(rows, columns + 1)[:, :columns]


def _span_ends(starts: Bools, maskable: Bools, lengths: Ints) -> Ints:
    """Return the end (exclusive) of a span that begins at each position, ignoring other spans: (R * (S + 1),).

    The end is 0 where no word begins. Positions are indices into flattened rows, each extended by an unmaskable token.
    """
    extra = np.zeros((len(maskable), 1), dtype=np.bool_)
    unmaskable = np.flatnonzero(~np.hstack([maskable, extra]))
    word_starts = np.flatnonzero(np.hstack([starts, extra]))
    next_words = np.minimum(np.arange(len(word_starts)) + lengths[starts], len(word_starts))
    ends = np.zeros(maskable.size + len(maskable), dtype=np.int64)
    limits = unmaskable[np.searchsorted(unmaskable, word_starts)]
    ends[word_starts] = np.minimum(np.append(word_starts, ends.size)[next_words], limits)
    return ends
