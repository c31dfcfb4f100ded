"""Hides tokens for masked LM, as a pure function of (seed, epoch, row).

BERT's recipe (Devlin et al. 2019, section 3.1) with an exact count: of the n maskable tokens of a row,
round(mlm_probability * n) are chosen, so the shapes never change and the prediction head runs at chosen positions only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domainbert.base.counter_random import random_bits, uniform
from domainbert.data.types import IGNORED
from domainbert.pretraining.config import MaskingConfig

_CHOOSE, _ACTION, _REPLACE = 1, 2, 3  # streams of random numbers

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskedRows:
    """Rows with hidden tokens."""

    input_ids: Ints  # (R, S) after hiding
    positions: Ints  # (R, K) places in the row to predict, ascending; unused slots point at 0
    labels: Ints  # (R, K) the hidden ids; `IGNORED` in unused slots


@dataclass(frozen=True)
class Masker:
    """Hides tokens of packed rows; `special_ids` are never hidden and never stand in for a hidden one."""

    config: MaskingConfig
    mask_id: int
    vocab_size: int
    special_ids: frozenset[int]

    def num_slots(self, row_length: int) -> int:
        """K: masked positions of a full row."""
        return max(1, round(self.config.mlm_probability * row_length))

    def num_masked(self, maskable_tokens: Ints) -> Ints:
        """Number of tokens that are hidden in rows with these numbers of maskable ones: exactly, and at least one."""
        return np.maximum(
            np.rint(self.config.mlm_probability * maskable_tokens).astype(np.int64), np.minimum(maskable_tokens, 1)
        )

    def mask(self, input_ids: Ints, starts_word: Bools, row_ids: Ints, epochs: Ints, seed: int) -> MaskedRows:
        """Hide tokens.

        Args:
            input_ids: (R, S).
            starts_word: (R, S) whether each token begins a word; of special tokens it is not asked.
            row_ids: (R,) see `objective.Key`, as for the following.
            epochs: (R,).
            seed: of the run.
        """
        rows, columns = input_ids.shape
        key = (seed, epochs[:, None], row_ids[:, None], np.arange(columns)[None, :])
        specials = np.asarray(sorted(self.special_ids))
        maskable = ~np.isin(input_ids, specials)
        wanted = self.num_masked(maskable.sum(axis=1))
        if self.config.whole_word:
            chosen = _choose_words(starts_word, maskable, wanted, key)
        else:
            chosen = _choose_pieces(maskable, wanted, key)
        slots = self.num_slots(columns)
        positions = np.zeros((rows, slots), dtype=np.int64)
        labels = np.full((rows, slots), IGNORED, dtype=np.int64)
        row, column = np.nonzero(chosen)
        slot = np.arange(len(row)) - np.concatenate([[0], np.cumsum(wanted)])[row]
        positions[row, slot] = column
        labels[row, slot] = input_ids[row, column]
        return MaskedRows(self._hide(input_ids, chosen, specials, key), positions, labels)

    def _hide(self, input_ids: Ints, chosen: Bools, specials: Ints, key: tuple[int, Ints, Ints, Ints]) -> Ints:
        ordinary = np.setdiff1d(np.arange(self.vocab_size), specials)
        action = uniform(random_bits(_ACTION, *key))
        replacement = ordinary[(random_bits(_REPLACE, *key) % np.uint64(len(ordinary))).astype(np.int64)]
        hidden = chosen & (action < self.config.mask_share)
        replaced = chosen & ~hidden & (action < self.config.mask_share + self.config.random_share)
        return np.where(hidden, self.mask_id, np.where(replaced, replacement, input_ids))


def _choose_pieces(maskable: Bools, wanted: Ints, key: tuple[int, Ints, Ints, Ints]) -> Bools:
    """(R, S) true at `wanted[r]` of the maskable places of each row, in random order."""
    scores = np.where(maskable, uniform(random_bits(_CHOOSE, *key)), 2.0)
    order = np.argsort(scores, axis=1, kind="stable")
    chosen = np.zeros(order.shape, dtype=bool)
    np.put_along_axis(chosen, order, np.arange(order.shape[1])[None, :] < wanted[:, None], axis=1)
    return chosen


def _choose_words(starts_word: Bools, maskable: Bools, wanted: Ints, key: tuple[int, Ints, Ints, Ints]) -> Bools:
    """Whole words in random order; a word that would exceed the count is passed over for later, shorter ones.

    Only when none of those fits is a word hidden in part, so the count stays exact.
    """
    rows, columns = maskable.shape
    starts = maskable & (starts_word | ~np.roll(maskable, 1, axis=1))
    word = np.cumsum(starts, axis=1)  # (R, S) number of the word in its row; pads and specials keep the last one's
    sizes = np.zeros((rows, columns + 1), dtype=np.int64)
    np.add.at(sizes, (np.arange(rows)[:, None], word), maskable)
    scores = np.where(starts, uniform(random_bits(_CHOOSE, *key)), 2.0)
    order = np.argsort(scores, axis=1, kind="stable")
    left = wanted.copy()
    taken = np.zeros((rows, columns + 1), dtype=bool)
    for rank in range(int(starts.sum(axis=1).max(initial=0))):
        if not left.any():
            break
        candidate = np.where(rank < starts.sum(axis=1), word[np.arange(rows), order[:, rank]], 0)
        fits = (candidate > 0) & (sizes[np.arange(rows), candidate] <= left)
        taken[np.arange(rows)[fits], candidate[fits]] = True
        left -= np.where(fits, sizes[np.arange(rows), candidate], 0)
    chosen = maskable & taken[np.arange(rows)[:, None], word]
    return chosen | _choose_pieces(maskable & ~chosen, left, key)
