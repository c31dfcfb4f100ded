"""Hides tokens for masked LM, as a pure function of (seed, progress, epoch, row).

BERT's recipe (Devlin et al. 2019, section 3.1) with an exact count: of the n maskable tokens of a row,
round(mlm_probability * n) are chosen, so shapes are fixed and the prediction head runs only at chosen positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from domainbert.base.counter_random import random_bits, uniform
from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Ints
from domainbert.data.types import IGNORE_INDEX
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objective import Key
from domainbert.pretraining.spans import Bools, Floats, choose_spans, span_lengths

_CHOOSE, _ACTION, _REPLACE, _LENGTH = 1, 2, 3, 10  # streams of random numbers

Counters = tuple[int, Ints, Ints, Ints]  # seed, epochs (R, 1), rows (R, 1), positions (1, S)


@dataclass(frozen=True)
class MaskedRows:
    """Rows with hidden tokens."""

    input_ids: Ints  # (R, S) after hiding
    positions: Ints  # (R, K) positions in the row to predict, ascending; 0 in unused slots
    labels: Ints  # (R, K) the hidden ids; `IGNORE_INDEX` in unused slots


@dataclass(frozen=True)
class Masker:
    """Hides tokens of packed rows; `special_ids` are never hidden and never replace a token."""

    config: MaskingConfig
    mask_id: int
    vocab_size: int
    special_ids: frozenset[int]
    counts: Ints | None = None  # (V,) frequency of each token in the corpus; only `frequency_power` needs it

    @cached_property
    def weights(self) -> Floats | None:
        """(V,) sampling weights; None for equal weights. Raise `DomainbertError` if `counts` are needed and missing."""
        power = self.config.frequency_power
        if not power:
            return None
        if self.counts is None:
            raise DomainbertError(
                f"frequency_power: found {power}; expected 0, because this objective does not count tokens"
            )
        return frequency_weights(self.counts, power)

    def num_slots(self, row_length: int) -> int:
        """K: maximum number of masked positions of a row."""
        return max(1, round(max(self.config.mlm_probabilities) * row_length))

    def num_masked(self, maskable_tokens: Ints, progress: float) -> Ints:
        """Exact number of hidden tokens, at least one, in rows with these numbers of maskable tokens.

        `progress` is defined in `objective.Key`.
        """
        rate = self.config.mlm_probability_at(progress)
        return np.maximum(np.rint(rate * maskable_tokens).astype(np.int64), np.minimum(maskable_tokens, 1))

    def mask(self, input_ids: Ints, starts_word: Bools, key: Key) -> MaskedRows:
        """Hide tokens.

        Args:
            input_ids: (R, S).
            starts_word: (R, S) whether each token begins a word; ignored for special tokens.
            key: key of these rows.
        """
        rows, columns = input_ids.shape
        counters = (key.seed, key.epochs[:, None], key.rows[:, None], np.arange(columns)[None, :])
        maskable = self._is_ordinary[input_ids]
        num_masked = self.num_masked(maskable.sum(axis=1), key.progress)
        if self.config.whole_word or self.config.spans is not None:
            chosen, deciding = self._choose_together(starts_word, maskable, num_masked, counters)
        else:
            weights = None if self.weights is None else self.weights[input_ids]
            chosen, deciding = _choose_pieces(maskable, num_masked, counters, weights), counters[3]
        slots = self.num_slots(columns)
        positions = np.zeros((rows, slots), dtype=np.int64)
        labels = np.full((rows, slots), IGNORE_INDEX, dtype=np.int64)
        row, column = np.nonzero(chosen)
        slot = np.arange(len(row)) - np.concatenate([[0], np.cumsum(num_masked)])[row]
        positions[row, slot] = column
        labels[row, slot] = input_ids[row, column]
        return MaskedRows(self._hide(input_ids, row, column, counters, deciding), positions, labels)

    def _choose_together(
        self, starts_word: Bools, maskable: Bools, num_masked: Ints, counters: Counters
    ) -> tuple[Bools, Ints]:
        """Choose words or spans (R, S); also return the position whose random number decides how a token is hidden."""
        starts = maskable & (starts_word | ~np.roll(maskable, 1, axis=1))
        if self.config.spans is None:
            return _choose_words(starts, maskable, num_masked, counters), counters[3]
        lengths = span_lengths(self.config.spans, uniform(random_bits(_LENGTH, *counters)))
        begins = choose_spans(starts, maskable, lengths, _random_order(starts, counters), num_masked)
        return begins >= 0, begins if self.config.spans == "geometric" else counters[3]

    @cached_property
    def _is_ordinary(self) -> Bools:
        """(V,) False for special tokens."""
        ordinary = np.ones(self.vocab_size, dtype=np.bool_)
        ordinary[sorted(self.special_ids)] = False
        return ordinary

    @cached_property
    def _ordinary(self) -> Ints:
        """Ids that may replace a token, ascending."""
        return np.flatnonzero(self._is_ordinary)

    def _hide(self, input_ids: Ints, row: Ints, column: Ints, counters: Counters, deciding: Ints) -> Ints:
        """Return the ids (R, S) with the chosen positions (N,) hidden, replaced or kept."""
        seed, epochs, rows, _ = counters
        key = seed, epochs[row, 0], rows[row, 0]
        deciders = np.broadcast_to(deciding, input_ids.shape)[row, column]
        action = uniform(random_bits(_ACTION, *key, deciders))
        number = random_bits(_REPLACE, *key, column) % np.uint64(len(self._ordinary))
        replaced = action < self.config.mask_share + self.config.random_share
        ids = np.where(replaced, self._ordinary[number.astype(np.int64)], input_ids[row, column])
        hidden = input_ids.copy()
        hidden[row, column] = np.where(action < self.config.mask_share, self.mask_id, ids)
        return hidden


def frequency_weights(counts: Ints, power: float) -> Floats:
    """(V,) sampling weights for tokens with these counts (Conneau and Lample 2019, section 3.3, for a power of 0.5)."""
    return np.maximum(counts, 1.0) ** -power


def _times(candidates: Bools, counters: Counters, weights: Floats | None = None) -> Floats:
    """(R, S) random sort keys of the positions of a row; infinite where `candidates` is false.

    With weights (R, S), ascending keys sample without replacement in proportion to the weights: keys are exponential
    waiting times whose rates are the weights (Efraimidis and Spirakis 2006).
    """
    draws = uniform(random_bits(_CHOOSE, *counters))
    return np.where(candidates, draws if weights is None else -np.log1p(-draws) / weights, np.inf)


def _random_order(candidates: Bools, counters: Counters) -> Ints:
    """(R, S) positions of each row: those where `candidates` is true, in random order, then the others."""
    return np.argsort(_times(candidates, counters), axis=1, kind="stable")


def _choose_pieces(maskable: Bools, num_masked: Ints, counters: Counters, weights: Floats | None = None) -> Bools:
    """(R, S) true at the `num_masked[r]` maskable positions of each row with the lowest times.

    Sorting values is several times as fast as `argsort`, which only ties require.
    """
    times = _times(maskable, counters, weights)
    last = np.take_along_axis(np.sort(times, axis=1), np.maximum(num_masked - 1, 0)[:, None], axis=1)
    chosen = (times <= last) & (num_masked > 0)[:, None]
    for row in np.flatnonzero(chosen.sum(axis=1) != num_masked).tolist():
        chosen[row] = False
        chosen[row, np.argsort(times[row], kind="stable")[: num_masked[row]]] = True
    return chosen


def _choose_words(starts: Bools, maskable: Bools, num_masked: Ints, counters: Counters) -> Bools:
    """Choose whole words in random order; a word that would exceed the count is skipped in favour of shorter words.

    If no remaining word fits, part of a word is hidden, so the count stays exact.
    """
    rows, columns = maskable.shape
    word = np.cumsum(starts, axis=1)  # (R, S) word index in the row; pads and special tokens keep the previous index

    sizes = np.zeros((rows, columns + 1), dtype=np.int64)
    np.add.at(sizes, (np.arange(rows)[:, None], word), maskable)
    order = _random_order(starts, counters)
    left = num_masked.copy()
    taken = np.zeros((rows, columns + 1), dtype=bool)
    for rank in range(int(starts.sum(axis=1).max(initial=0))):
        if not left.any():
            break
        candidate = np.where(rank < starts.sum(axis=1), word[np.arange(rows), order[:, rank]], 0)
        fits = (candidate > 0) & (sizes[np.arange(rows), candidate] <= left)
        taken[np.arange(rows)[fits], candidate[fits]] = True
        left -= np.where(fits, sizes[np.arange(rows), candidate], 0)
    chosen = maskable & taken[np.arange(rows)[:, None], word]
    return chosen | _choose_pieces(maskable & ~chosen, left, counters)
