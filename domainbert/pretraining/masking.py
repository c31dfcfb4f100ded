"""Hides tokens for masked LM, as a pure function of (seed, progress, epoch, row).

BERT's recipe (Devlin et al. 2019, section 3.1) with an exact count: of the n maskable tokens of a row,
round(mlm_probability * n) are chosen, so shapes are fixed and the prediction head runs only at chosen positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from domainbert.base.counter_random import random_bits, uniform
from domainbert.data.packing import IGNORE_INDEX, Ints
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objective import Key

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

_CHOOSE, _ACTION, _REPLACE = 1, 2, 3  # streams of random numbers

Counters = tuple[int, Ints, Ints, Ints]  # seed, epochs (R, 1), rows (R, 1), positions (1, S)


@dataclass(frozen=True)
class MaskedRows:
    """Rows with hidden tokens."""

    input_ids: Ints  # (R, S) after hiding
    positions: Ints  # (R, K) positions in the row to predict, ascending; 0 in unused slots
    labels: Ints  # (R, K) the hidden ids; `IGNORE_INDEX` in unused slots

    @property
    def flat_positions(self) -> Ints:
        """(R * K,) positions to predict in the flattened tokens."""
        num_rows, row_length = self.input_ids.shape
        return (self.positions + np.arange(num_rows)[:, None] * row_length).ravel()


@dataclass(frozen=True)
class Masker:
    """Hides tokens of packed rows; `special_ids` are never hidden and never replace a token."""

    config: MaskingConfig
    mask_id: int
    vocab_size: int
    special_ids: frozenset[int]

    def num_slots(self, row_length: int) -> int:
        """Return K, the maximum number of masked positions of a row."""
        return max(1, round(max(self.config.mlm_probabilities) * row_length))

    def num_masked(self, maskable_tokens: Ints, progress: float) -> Ints:
        """Return how many tokens to hide in each row, given the numbers of maskable tokens: (R,) -> (R,).

        At least one, or 0 in a row without maskable tokens. `progress` is defined in `objective.Key`.
        """
        rate = self.config.mlm_probability_at(progress)
        return np.maximum(np.rint(rate * maskable_tokens).astype(np.int64), np.minimum(maskable_tokens, 1))

    def mask(self, input_ids: Ints, starts_word: Bools, key: Key) -> MaskedRows:
        """Hide tokens, and return the changed ids with the positions and the original ids of the hidden tokens.

        Args:
            input_ids: (R, S).
            starts_word: (R, S) whether each token begins a word; ignored for special tokens.
            key: key of these rows.
        """
        num_rows, row_length = input_ids.shape
        counters = (key.seed, key.epochs[:, None], key.rows[:, None], np.arange(row_length)[None, :])
        maskable = self._is_ordinary[input_ids]
        num_masked = self.num_masked(maskable.sum(axis=1), key.progress)
        if self.config.whole_word:
            follows_maskable = np.roll(maskable, 1, axis=1)  # wraps around to the first token of a row, a special token
            starts = maskable & (starts_word | ~follows_maskable)
            chosen = _choose_words(starts, maskable, num_masked, counters)
        else:
            chosen = _choose_pieces(maskable, num_masked, counters)
        num_slots = self.num_slots(row_length)
        positions = np.zeros((num_rows, num_slots), dtype=np.int64)
        labels = np.full((num_rows, num_slots), IGNORE_INDEX, dtype=np.int64)
        # the chosen tokens of a row fill its first slots
        row, column = np.nonzero(chosen)  # (N,) each, of the N chosen tokens, row by row
        num_in_rows_before = np.cumsum(num_masked) - num_masked
        slot = np.arange(len(row)) - num_in_rows_before[row]
        positions[row, slot] = column
        labels[row, slot] = input_ids[row, column]
        return MaskedRows(self._hide(input_ids, row, column, counters), positions, labels)

    @cached_property
    def _is_ordinary(self) -> Bools:
        """(V,) False for special tokens."""
        ordinary = np.ones(self.vocab_size, dtype=np.bool_)
        ordinary[sorted(self.special_ids)] = False
        return ordinary

    @cached_property
    def _ordinary_ids(self) -> Ints:
        return np.flatnonzero(self._is_ordinary)

    def _hide(self, input_ids: Ints, row: Ints, column: Ints, counters: Counters) -> Ints:
        """Return the ids (R, S) after hiding, replacing or keeping the chosen tokens, at `row` and `column` (N,)."""
        seed, epochs, rows, _ = counters
        counters_of_token = seed, epochs[row, 0], rows[row, 0], column
        action = uniform(random_bits(_ACTION, *counters_of_token))  # in [0, 1)
        random_index = random_bits(_REPLACE, *counters_of_token) % np.uint64(len(self._ordinary_ids))
        random_ids = self._ordinary_ids[random_index.astype(np.int64)]
        is_hidden = action < self.config.mask_share
        is_replaced = ~is_hidden & (action < self.config.mask_share + self.config.random_share)
        output = input_ids.copy()
        output[row[is_hidden], column[is_hidden]] = self.mask_id
        output[row[is_replaced], column[is_replaced]] = random_ids[is_replaced]
        return output


def _sort_keys(candidates: Bools, counters: Counters) -> Floats:
    """Return random sort keys of the positions of each row (R, S); infinite where `candidates` is false."""
    return np.where(candidates, uniform(random_bits(_CHOOSE, *counters)), np.inf)


def _random_order(candidates: Bools, counters: Counters) -> Ints:
    """Return the positions of each row (R, S): those where `candidates` is true, in random order, then the others."""
    return np.argsort(_sort_keys(candidates, counters), axis=1, kind="stable")


def _choose_pieces(maskable: Bools, num_masked: Ints, counters: Counters) -> Bools:
    """Choose `num_masked[r]` maskable positions of each row r at random: (R, S). These positions have the smallest sort
    keys. Sorting keys is several times as fast as `argsort`, which is only needed for rows with equal keys."""
    keys = _sort_keys(maskable, counters)
    last_index = np.maximum(num_masked - 1, 0)[:, None]  # of the chosen keys, in the sorted keys of a row
    largest_chosen = np.take_along_axis(np.sort(keys, axis=1), last_index, axis=1)
    chosen = (keys <= largest_chosen) & (num_masked > 0)[:, None]
    for row in np.flatnonzero(chosen.sum(axis=1) != num_masked).tolist():  # equal keys: too many are chosen
        chosen[row] = False
        chosen[row, np.argsort(keys[row], kind="stable")[: num_masked[row]]] = True
    return chosen


def _choose_words(starts: Bools, maskable: Bools, num_masked: Ints, counters: Counters) -> Bools:
    """Choose `num_masked[r]` tokens of each row r: (R, S), whole words in random order.

    A word that would exceed the number is skipped in favour of shorter words. If no remaining word fits, part of a word
    is chosen, so the number stays exact.
    """
    num_rows, columns = maskable.shape
    rows, num_words = np.arange(num_rows), starts.sum(axis=1)
    # (R, S) index of the word in the row, from 1; padding and special tokens have the index of the word before them
    word = np.cumsum(starts, axis=1)
    sizes = np.zeros((num_rows, columns + 1), dtype=np.int64)  # maskable tokens by word index; index 0 is no word
    np.add.at(sizes, (rows[:, None], word), maskable)
    shuffled_starts = _random_order(starts, counters)  # (R, S) columns: word starts in random order, then the others
    remaining = num_masked.copy()  # tokens still to choose
    chosen_words = np.zeros((num_rows, columns + 1), dtype=bool)
    for rank in range(int(num_words.max(initial=0))):  # all rows together try their next word
        if not remaining.any():
            break
        candidate = np.where(rank < num_words, word[rows, shuffled_starts[:, rank]], 0)
        fits = (candidate > 0) & (sizes[rows, candidate] <= remaining)
        chosen_words[rows[fits], candidate[fits]] = True
        remaining -= np.where(fits, sizes[rows, candidate], 0)
    chosen = maskable & chosen_words[rows[:, None], word]
    return chosen | _choose_pieces(maskable & ~chosen, remaining, counters)
