"""Hides tokens for masked LM, as a pure function of (seed, progress, epoch, row).

BERT's recipe (Devlin et al. 2019, section 3.1) with an exact count: of the n maskable tokens of a row,
round(mlm_probability * n) are chosen, so shapes are fixed and the prediction head runs only at chosen positions. Spans
of whole words follow Joshi et al. 2020 (SpanBERT), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from domainbert.base.counter_random import random_bits, uniform
from domainbert.base.errors import DomainbertError
from domainbert.data.packing import IGNORE_INDEX, Ints
from domainbert.pretraining.config import MaskingConfig
from domainbert.pretraining.objective import Key

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

LENGTHS: dict[str, NDArray[np.floating]] = {"geometric": 0.2 * 0.8 ** np.arange(10), "ngram": 1 / np.arange(1, 4)}
"""Weights of span lengths 1, 2, ...: SpanBERT's geometric distribution, truncated at ten words, and DeBERTa's
(`NGramMaskGenerator` in its code)."""


def span_lengths(distribution: str, uniforms: Floats) -> Ints:
    """Return a span length in words for each number in [0, 1), of any shape, by inverting the distribution function."""
    sums = np.cumsum(LENGTHS[distribution])
    limits = sums[:-1] / sums[-1]  # between one length and the next
    return np.searchsorted(limits, uniforms, side="right") + 1  # index 0 is length 1


def choose_spans(starts: Bools, maskable: Bools, lengths: Ints, order: Ints, num_masked: Ints) -> Ints:
    """Choose spans to hide; return the column where the span of each hidden token starts, else -1: (R, S).

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
    num_rows, columns = maskable.shape
    # `ends`, `flat_start` and `flat_positions` are indices into flattened rows with an extra token each (`_span_ends`)
    ends = _span_ends(starts, maskable, lengths)
    row_starts = np.arange(num_rows) * (columns + 1)
    longest = int((ends - np.arange(ends.size)).max(initial=0))
    offsets = np.arange(longest)  # of the tokens of a span
    span_starts = np.full(ends.size + longest, -1)  # by flat index; a span of `longest` may extend beyond the last row
    remaining = num_masked.copy()
    for rank in range(columns):  # a span in each row
        if not remaining.any():
            break
        column = order[:, rank]
        flat_start = row_starts + column
        flat_positions = flat_start[:, None] + offsets
        max_sizes = np.minimum(ends[flat_start] - flat_start, remaining)
        may_hide = (span_starts[flat_positions] < 0) & (offsets < max_sizes[:, None])
        newly_hidden = np.logical_and.accumulate(may_hide, axis=1)  # up to the first token that is hidden already
        sizes = newly_hidden.sum(axis=1)
        span_starts[flat_positions[newly_hidden]] = np.repeat(column, sizes)
        remaining -= sizes
    return span_starts[: ends.size].reshape(num_rows, columns + 1)[:, :columns]


def _span_ends(starts: Bools, maskable: Bools, lengths: Ints) -> Ints:
    """Return the end (exclusive) of a span of `lengths` words that begins at each position: (R * (S + 1),).

    Other spans are ignored; the end is 0 where no word begins. Positions and ends are indices into flattened rows, each
    extended by an unmaskable token.
    """
    extra = np.zeros((len(maskable), 1), dtype=np.bool_)
    unmaskable = np.flatnonzero(~np.hstack([maskable, extra]))
    word_starts = np.flatnonzero(np.hstack([starts, extra]))
    ends = np.zeros(maskable.size + len(maskable), dtype=np.int64)
    # a span ends where the first word after it begins, or at the next unmaskable token
    words_after = np.minimum(np.arange(len(word_starts)) + lengths[starts], len(word_starts))
    next_unmaskable = unmaskable[np.searchsorted(unmaskable, word_starts)]
    ends[word_starts] = np.minimum(np.append(word_starts, ends.size)[words_after], next_unmaskable)
    return ends


_CHOOSE, _ACTION, _REPLACE, _LENGTH = 1, 2, 3, 10  # streams of random numbers

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
    counts: Ints | None = None  # (V,) frequency of each token in the corpus; only `frequency_power` needs it

    @cached_property
    def weights(self) -> Floats | None:
        """(V,) sampling weights of tokens; None for equal weights. Raises `DomainbertError` without needed `counts`."""
        power = self.config.frequency_power
        if not power:
            return None
        if self.counts is None:
            raise DomainbertError(
                f"masking.frequency_power: found {power}; expected 0, because the objective does not count tokens"
            )
        return frequency_weights(self.counts, power)

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
        rows, columns = input_ids.shape
        columns_of_row = np.arange(columns)[None, :]
        counters = (key.seed, key.epochs[:, None], key.rows[:, None], columns_of_row)
        maskable = self._is_ordinary[input_ids]
        num_masked = self.num_masked(maskable.sum(axis=1), key.progress)
        # chosen tokens, and the column of the token whose random number decides on hiding, for all tokens of a span
        if self.config.whole_word or self.config.spans is not None:
            chosen, deciding_columns = self._choose_together(starts_word, maskable, num_masked, counters)
        else:
            weights = None if self.weights is None else self.weights[input_ids]
            chosen, deciding_columns = _choose_pieces(maskable, num_masked, counters, weights), columns_of_row
        num_slots = self.num_slots(columns)
        positions = np.zeros((rows, num_slots), dtype=np.int64)
        labels = np.full((rows, num_slots), IGNORE_INDEX, dtype=np.int64)
        # the chosen tokens of a row fill its first slots
        row, column = np.nonzero(chosen)  # (N,) each, row by row
        first_of_row = np.concatenate([[0], np.cumsum(num_masked)])[row]
        slot = np.arange(len(row)) - first_of_row
        positions[row, slot] = column
        labels[row, slot] = input_ids[row, column]
        return MaskedRows(self._hide(input_ids, row, column, counters, deciding_columns), positions, labels)

    def _choose_together(
        self, starts_word: Bools, maskable: Bools, num_masked: Ints, counters: Counters
    ) -> tuple[Bools, Ints]:
        """Choose the tokens of whole words or spans (R, S).

        Also return, for each token, the column of the token whose random number decides whether it is hidden, replaced
        or kept: the start of a geometric span for all tokens of the span, otherwise its own column.
        """
        follows_maskable = np.roll(maskable, 1, axis=1)  # wraps around to the first token of a row, which is special
        starts = maskable & (starts_word | ~follows_maskable)
        *_, own_columns = counters
        if self.config.spans is None:
            return _choose_words(starts, maskable, num_masked, counters), own_columns
        lengths = span_lengths(self.config.spans, uniform(random_bits(_LENGTH, *counters)))
        # the column where the span of each token starts; -1 if the token is not chosen
        start_of_span = choose_spans(starts, maskable, lengths, _random_order(starts, counters), num_masked)
        return start_of_span >= 0, start_of_span if self.config.spans == "geometric" else own_columns

    @cached_property
    def _is_ordinary(self) -> Bools:
        """(V,) False for special tokens."""
        ordinary = np.ones(self.vocab_size, dtype=np.bool_)
        ordinary[sorted(self.special_ids)] = False
        return ordinary

    @cached_property
    def _ordinary_ids(self) -> Ints:
        """Ids of all tokens except special tokens, which may replace a token; ascending."""
        return np.flatnonzero(self._is_ordinary)

    def _hide(self, input_ids: Ints, row: Ints, column: Ints, counters: Counters, deciding_columns: Ints) -> Ints:
        """Return the ids (R, S) after hiding, replacing or keeping the chosen tokens, at `row` and `column` (N,).

        `deciding_columns` are (R, S) or (1, S), see `_choose_together`.
        """
        seed, epochs, rows, _ = counters
        key = seed, epochs[row, 0], rows[row, 0]
        deciding_column = np.broadcast_to(deciding_columns, input_ids.shape)[row, column]
        action = uniform(random_bits(_ACTION, *key, deciding_column))
        random_index = random_bits(_REPLACE, *key, column) % np.uint64(len(self._ordinary_ids))
        random_ids = self._ordinary_ids[random_index.astype(np.int64)]
        is_hidden = action < self.config.mask_share
        is_replaced = ~is_hidden & (action < self.config.mask_share + self.config.random_share)
        output = input_ids.copy()
        output[row[is_hidden], column[is_hidden]] = self.mask_id
        output[row[is_replaced], column[is_replaced]] = random_ids[is_replaced]
        return output


def frequency_weights(counts: Ints, power: float) -> Floats:
    """Return sampling weights (V,) for token counts (V,) (Conneau and Lample 2019, section 3.3, with power 0.5)."""
    return np.maximum(counts, 1.0) ** -power


def _sort_keys(candidates: Bools, counters: Counters, weights: Floats | None = None) -> Floats:
    """Return random sort keys of the positions of each row (R, S); infinite where `candidates` is false.

    With weights (R, S), ascending keys sample without replacement in proportion to the weights: keys are exponential
    waiting times whose rates are the weights (Efraimidis and Spirakis 2006).
    """
    keys = uniform(random_bits(_CHOOSE, *counters))
    if weights is not None:
        keys = -np.log1p(-keys) / weights
    return np.where(candidates, keys, np.inf)


def _random_order(candidates: Bools, counters: Counters) -> Ints:
    """Return the positions of each row (R, S): those where `candidates` is true, in random order, then the others."""
    return np.argsort(_sort_keys(candidates, counters), axis=1, kind="stable")


def _choose_pieces(maskable: Bools, num_masked: Ints, counters: Counters, weights: Floats | None = None) -> Bools:
    """Choose `num_masked[r]` maskable positions of each row r at random: (R, S).

    These positions have the smallest sort keys. Sorting keys is several times as fast as `argsort`, which is only
    needed for rows with equal keys.
    """
    keys = _sort_keys(maskable, counters, weights)
    largest = np.take_along_axis(np.sort(keys, axis=1), np.maximum(num_masked - 1, 0)[:, None], axis=1)
    chosen = (keys <= largest) & (num_masked > 0)[:, None]
    for row in np.flatnonzero(chosen.sum(axis=1) != num_masked).tolist():  # equal keys
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
    sizes = np.zeros((num_rows, columns + 1), dtype=np.int64)  # by word index; 0 stands for no word
    np.add.at(sizes, (rows[:, None], word), maskable)
    column_order = _random_order(starts, counters)  # (R, S) columns: word starts in random order, then the others
    remaining = num_masked.copy()
    chosen_words = np.zeros((num_rows, columns + 1), dtype=bool)
    for rank in range(int(num_words.max(initial=0))):
        if not remaining.any():
            break
        candidate = np.where(rank < num_words, word[rows, column_order[:, rank]], 0)
        fits = (candidate > 0) & (sizes[rows, candidate] <= remaining)
        chosen_words[rows[fits], candidate[fits]] = True
        remaining -= np.where(fits, sizes[rows, candidate], 0)
    chosen = maskable & chosen_words[rows[:, None], word]
    return chosen | _choose_pieces(maskable & ~chosen, remaining, counters)
