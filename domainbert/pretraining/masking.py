"""Hides tokens for masked LM, as a pure function of (seed, progress, epoch, row).

BERT's recipe (Devlin et al. 2019, section 3.1) with an exact count: of the n maskable tokens of a row,
round(mlm_probability * n) are chosen, so the shapes never change and the prediction head runs at chosen positions only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from domainbert.base.counter_random import random_bits, uniform
from domainbert.base.errors import DomainbertError
from domainbert.data.packing import Ints
from domainbert.data.types import IGNORED
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objective import Key
from domainbert.pretraining.spans import Bools, Floats, choose_spans, span_lengths

_CHOOSE, _ACTION, _REPLACE, _LENGTH = 1, 2, 3, 10  # streams of random numbers

Counters = tuple[int, Ints, Ints, Ints]  # seed, epochs (R, 1), rows (R, 1), places (1, S)


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
    counts: Ints | None = None  # (V,) how often each entry stands in the corpus; only `frequency_power` needs them

    @cached_property
    def weights(self) -> Floats | None:
        """(V,) in proportion to which entries are hidden; None: all alike. `DomainbertError` without their counts."""
        power = self.config.frequency_power
        if not power:
            return None
        if self.counts is None:
            raise DomainbertError(f"frequency_power: {power}; this objective does not count tokens; expected 0")
        return frequency_weights(self.counts, power)

    def num_slots(self, row_length: int) -> int:
        """K: masked positions of a full row at any step."""
        return max(1, round(max(self.config.mlm_probabilities) * row_length))

    def num_masked(self, maskable_tokens: Ints, progress: float) -> Ints:
        """Number of tokens that are hidden in rows with these numbers of maskable ones: exactly, and at least one.

        `progress` is that of the `objective.Key`.
        """
        rate = self.config.mlm_probability_at(progress)
        return np.maximum(np.rint(rate * maskable_tokens).astype(np.int64), np.minimum(maskable_tokens, 1))

    def mask(self, input_ids: Ints, starts_word: Bools, key: Key) -> MaskedRows:
        """Hide tokens.

        Args:
            input_ids: (R, S).
            starts_word: (R, S) whether each token begins a word; of special tokens it is not asked.
            key: of these rows.
        """
        rows, columns = input_ids.shape
        counters = (key.seed, key.epochs[:, None], key.rows[:, None], np.arange(columns)[None, :])
        maskable = self._is_ordinary[input_ids]
        wanted = self.num_masked(maskable.sum(axis=1), key.progress)
        if self.config.whole_word or self.config.spans is not None:
            chosen, deciding = self._choose_together(starts_word, maskable, wanted, counters)
        else:
            weights = None if self.weights is None else self.weights[input_ids]
            chosen, deciding = _choose_pieces(maskable, wanted, counters, weights), counters[3]
        slots = self.num_slots(columns)
        positions = np.zeros((rows, slots), dtype=np.int64)
        labels = np.full((rows, slots), IGNORED, dtype=np.int64)
        row, column = np.nonzero(chosen)
        slot = np.arange(len(row)) - np.concatenate([[0], np.cumsum(wanted)])[row]
        positions[row, slot] = column
        labels[row, slot] = input_ids[row, column]
        return MaskedRows(self._hide(input_ids, row, column, counters, deciding), positions, labels)

    def _choose_together(
        self, starts_word: Bools, maskable: Bools, wanted: Ints, counters: Counters
    ) -> tuple[Bools, Ints]:
        """The tokens of words or spans to hide (R, S), and the place whose draw decides what becomes of each."""
        starts = maskable & (starts_word | ~np.roll(maskable, 1, axis=1))
        if self.config.spans is None:
            return _choose_words(starts, maskable, wanted, counters), counters[3]
        lengths = span_lengths(self.config.spans, uniform(random_bits(_LENGTH, *counters)))
        begins = choose_spans(starts, maskable, lengths, _random_order(starts, counters), wanted)
        return begins >= 0, begins if self.config.spans == "geometric" else counters[3]

    @cached_property
    def _is_ordinary(self) -> Bools:
        """(V,) False for the special entries."""
        ordinary = np.ones(self.vocab_size, dtype=np.bool_)
        ordinary[sorted(self.special_ids)] = False
        return ordinary

    @cached_property
    def _ordinary(self) -> Ints:
        """The entries that may replace a token, ascending."""
        return np.flatnonzero(self._is_ordinary)

    def _hide(self, input_ids: Ints, row: Ints, column: Ints, counters: Counters, deciding: Ints) -> Ints:
        """Return the ids (R, S) with the chosen places (N,) hidden, replaced or kept."""
        seed, epochs, rows, _ = counters
        own = seed, epochs[row, 0], rows[row, 0]
        deciders = np.broadcast_to(deciding, input_ids.shape)[row, column]
        action = uniform(random_bits(_ACTION, *own, deciders))
        number = random_bits(_REPLACE, *own, column) % np.uint64(len(self._ordinary))
        replaced = action < self.config.mask_share + self.config.random_share
        ids = np.where(replaced, self._ordinary[number.astype(np.int64)], input_ids[row, column])
        found = input_ids.copy()
        found[row, column] = np.where(action < self.config.mask_share, self.mask_id, ids)
        return found


def frequency_weights(counts: Ints, power: float) -> Floats:
    """(V,) in proportion to which entries that stand so often in a corpus are hidden (Conneau and Lample 2019, section
    3.3, for a power of 0.5)."""
    return np.maximum(counts, 1.0) ** -power


def _times(places: Bools, counters: Counters, weights: Floats | None = None) -> Floats:
    """(R, S) random numbers by which the places of a row are taken, the lowest first; infinite where `places` is false.

    With weights (R, S) the next one is always drawn in proportion to those that are left: by exponential times to wait
    for each, whose rates are the weights (Efraimidis and Spirakis 2006).
    """
    draws = uniform(random_bits(_CHOOSE, *counters))
    return np.where(places, draws if weights is None else -np.log1p(-draws) / weights, np.inf)


def _random_order(places: Bools, counters: Counters) -> Ints:
    """(R, S) the places of each row, those that are true in random order before the others."""
    return np.argsort(_times(places, counters), axis=1, kind="stable")


def _choose_pieces(maskable: Bools, wanted: Ints, counters: Counters, weights: Floats | None = None) -> Bools:
    """(R, S) true at `wanted[r]` of the maskable places of each row, those with the lowest times.

    Sorting values is several times as fast as sorting places; only equal times need the places.
    """
    times = _times(maskable, counters, weights)
    last = np.take_along_axis(np.sort(times, axis=1), np.maximum(wanted - 1, 0)[:, None], axis=1)
    chosen = (times <= last) & (wanted > 0)[:, None]
    for row in np.flatnonzero(chosen.sum(axis=1) != wanted).tolist():
        chosen[row] = False
        chosen[row, np.argsort(times[row], kind="stable")[: wanted[row]]] = True
    return chosen


def _choose_words(starts: Bools, maskable: Bools, wanted: Ints, counters: Counters) -> Bools:
    """Whole words in random order; a word that would exceed the count is passed over for later, shorter ones.

    Only when none of those fits is a word hidden in part, so the count stays exact.
    """
    rows, columns = maskable.shape
    word = np.cumsum(starts, axis=1)  # (R, S) number of the word in its row; pads and specials keep the last one's
    sizes = np.zeros((rows, columns + 1), dtype=np.int64)
    np.add.at(sizes, (np.arange(rows)[:, None], word), maskable)
    order = _random_order(starts, counters)
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
    return chosen | _choose_pieces(maskable & ~chosen, left, counters)
