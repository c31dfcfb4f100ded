"""Train a Unigram vocabulary: pieces and their probabilities (Kudo 2018, "Subword Regularization", section 3.2).

Initially every string that occurs often enough is a piece. Expectation maximisation estimates the probabilities over
all segmentations of the words; then the tenth of the pieces with the lowest loss is removed, and so on. Constants are
as in sentencepiece, unless noted.

The trainers of `tokenizers` and sentencepiece sum in the order of hash tables and threads, so results vary from run to
run. Here all sums are in float64 and in the order of the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"

_MAX_PIECE_CHARACTERS = 16
_MAX_SEEDS = 1_000_000
_KEPT_SHARE = 0.9  # of the pieces, in each round; sentencepiece: 0.75, which is faster and needs more pieces per word
_OVERSIZE = 1.1  # removal by loss ends at `size` times this; the last tenth is removed by probability
_SUB_ITERATIONS = 2  # of expectation maximisation, in each round
_MIN_EXPECTED = 0.5  # expected occurrences of a piece
_DECIMALS = 6  # of a score
_END = "\n"  # after each string


def learn_pieces(
    words: Mapping[str, int], alphabet: Sequence[str], size: int, min_frequency: int
) -> list[tuple[str, float]]:
    """Return up to `size` pieces of counted words with their log probabilities (natural), the most probable first.

    Words have at most 32 characters, all in the alphabet and no white space. Every character of the alphabet is a
    piece, so `size` is at least their number; other pieces have at most 16 characters and occur `min_frequency` times.
    Ties: the shorter piece first.
    """
    oversize = int(size * _OVERSIZE)
    # characters with 0 occurrences, so that every character becomes a piece
    table = _seed_table({**dict.fromkeys(alphabet, 0), **words}, min_frequency)
    expected = table.occurrences
    while True:
        for _ in range(_SUB_ITERATIONS):
            expected = _expected_counts(table, _probabilities(expected))
            kept = (expected >= _MIN_EXPECTED) | table.single
            table, expected = table.select(kept), expected[kept]
        probabilities = _probabilities(expected)
        if len(expected) <= oversize:
            break
        # the log likelihood that is lost if other pieces replace a piece
        gains = np.log(probabilities / _split_probabilities(table, probabilities))
        loss = np.where(table.single, np.inf, expected * gains)  # single characters are never removed
        kept = _largest_mask(loss, max(oversize, int(len(expected) * _KEPT_SHARE)))
        table, expected = table.select(kept), expected[kept]
    scores = np.round(np.log(probabilities), _DECIMALS)
    best = np.flatnonzero(_largest_mask(np.where(table.single, np.inf, scores), size))
    ordered = best[np.argsort(-scores[best], kind="stable")]
    return [(table.piece(index), float(scores[index])) for index in ordered.tolist()]


@dataclass(frozen=True)
class _PieceTable:
    """A list of strings, sorted by descending length, and the pieces that begin at each of their P positions.

    Each string takes one position per character and one for its end. Pieces are numbered by length, then by their
    characters.
    """

    text: str  # (P,) the strings, each with an end
    begins: Ints  # (strings,) position of the first character
    lengths: Ints  # (strings,) characters
    counts: Floats  # (strings,) occurrences
    pieces_at: NDArray[np.int32]
    """(16, P) Index of the piece of 1, 2, ... characters that begins at each position; the number of pieces if there is
    none."""

    positions: Ints  # (pieces,) position of the first occurrence
    sizes: Ints  # (pieces,) characters
    occurrences: Floats  # (pieces,) as a substring of the strings

    @property
    def single(self) -> Bools:
        """Whether each piece is one character, (pieces,)."""
        return self.sizes == 1

    def piece(self, index: int) -> str:
        return self.text[self.positions[index] : self.positions[index] + self.sizes[index]]

    def select(self, kept: Bools) -> _PieceTable:
        """Return a table with only the pieces that are True in `kept` (pieces,), renumbered."""
        num_kept = np.count_nonzero(kept)
        # `pieces_at` has the number of pieces where there is none, so the last index stands for "none", too
        new_indices = np.full(len(kept) + 1, num_kept, dtype=np.int32)
        new_indices[:-1][kept] = np.arange(num_kept)
        return replace(
            self,
            pieces_at=new_indices[self.pieces_at],
            positions=self.positions[kept],
            sizes=self.sizes[kept],
            occurrences=self.occurrences[kept],
        )


class _FrequentStrings(NamedTuple):
    """The frequent strings of one length."""

    positions: Ints  # (n,) positions where a frequent string begins
    indices: Ints  # (n,) index of the string at each position
    first_positions: Ints  # (strings,) position of the first occurrence
    counts: Floats  # (strings,) occurrences
    parents: Ints  # (strings,) index, among the strings one shorter, of the string without its last character


def _seed_table(words: Mapping[str, int], min_frequency: int) -> _PieceTable:
    """Return a table of the seed pieces, at most 1,000,000: all single characters, then strings by length x
    occurrences. The strings occur at least `min_frequency` times, and not always before the same character."""
    ordered = sorted(words, key=lambda word: (-len(word), word))
    lengths = np.array([len(word) for word in ordered], dtype=np.int64)
    counts = np.array([words[word] for word in ordered], dtype=np.float64)
    text = "".join(word + _END for word in ordered)
    levels = list(_frequent_strings_by_length(text, np.repeat(counts, lengths + 1), min_frequency))
    table = _table_of_all(levels, text, lengths, counts)

    # each level is compared with the strings one longer
    branching = np.concatenate([_is_branching(level, longer) for level, longer in zip_longest(levels, levels[1:])])
    seeds = branching | table.single
    weights = np.where(seeds, table.occurrences * table.sizes, -np.inf)
    weights[table.single] = np.inf
    return table.select(seeds & _largest_mask(weights, _MAX_SEEDS))


def _table_of_all(levels: Sequence[_FrequentStrings], text: str, lengths: Ints, counts: Floats) -> _PieceTable:
    nums_strings = [len(level.counts) for level in levels]  # of 1, 2, ... characters
    sizes = np.repeat(np.arange(1, len(levels) + 1), nums_strings)  # (pieces,) characters
    pieces_at = np.full((_MAX_PIECE_CHARACTERS, len(text)), len(sizes), dtype=np.int32)
    for row, level, num_shorter in zip(pieces_at, levels, accumulate(nums_strings, initial=0), strict=False):
        row[level.positions] = num_shorter + level.indices
    positions = np.concatenate([level.first_positions for level in levels])
    occurrences = np.concatenate([level.counts for level in levels])
    ends = np.cumsum(lengths + 1)  # each string has one position more, for its end
    begins = ends - lengths - 1
    return _PieceTable(text, begins, lengths, counts, pieces_at, positions, sizes, occurrences)


def _frequent_strings_by_length(text: str, weights: Floats, min_frequency: int) -> Iterator[_FrequentStrings]:
    """Yield the frequent strings of 1, 2, ... up to 16 characters; all single characters count as frequent.

    `text` is a list of words with an end after each; `weights` (len(text),) has the occurrences of the word at each
    position. A string is counted by a number (`keys`) made of the index of its beginning and its last character.
    """
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    characters = np.unique(points, return_inverse=True)[1].astype(np.int64)  # (len(text),) numbered from 0
    prefix_at = np.full(len(text) + 1, -1, dtype=np.int64)  # index of the frequent string one shorter; -1: none
    positions = np.flatnonzero(points != ord(_END))
    keys = characters[positions]
    for size in range(1, _MAX_PIECE_CHARACTERS + 1):
        # count the strings of this size: the first place of each in `positions`, and the string at each position
        _, first, indices = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.bincount(indices, weights[positions], len(first)).astype(np.float64)
        frequent = (counts >= min_frequency) | (size == 1)
        new_index = np.cumsum(frequent) - 1  # of each frequent string
        kept, first_positions = frequent[indices], positions[first[frequent]]
        parents = prefix_at[first_positions]
        level = _FrequentStrings(positions[kept], new_index[indices[kept]], first_positions, counts[frequent], parents)
        yield level

        # extend by a character the strings that are frequent without their first character, too
        prefix_at[:] = -1
        prefix_at[level.positions] = level.indices
        positions = level.positions[prefix_at[level.positions + 1] >= 0]
        if not len(positions):
            return
        keys = prefix_at[positions] * (characters.max() + 1) + characters[positions + size]


def _is_branching(level: _FrequentStrings, longer: _FrequentStrings | None) -> Bools:
    """Return whether each string is not always followed by the same character, (strings,). `longer` are the frequent
    strings one character longer, or None if there are none."""
    branching = np.ones(len(level.first_positions), dtype=np.bool_)
    if longer is not None:
        # a string that occurs as often as its extension by a character is always followed by this character
        branching[longer.parents[longer.counts == level.counts[longer.parents]]] = False
    return branching


def _expected_counts(table: _PieceTable, probabilities: Floats) -> Floats:
    """Return the expected occurrences of each piece over all segmentations, (pieces,), by the forward-backward
    algorithm."""
    columns = _forward_probabilities(table, table.begins, table.lengths, probabilities)
    padded = np.append(probabilities, 0.0)  # the last is for positions without a piece
    size, longest = len(table.text), len(columns) - 1
    # forward: by position, the probability of the part of the string before it
    # backward: the probability of the other part, times the count of the string / the probability of the whole string
    forward, backward = np.zeros(size), np.zeros(size + _MAX_PIECE_CHARACTERS)
    for length, column in enumerate(columns):  # a column has the first strings, because the longest are first
        forward[table.begins[: len(column)] + length] = column
    ends = table.begins + table.lengths
    backward[ends] = table.counts / forward[ends]
    for length in range(longest - 1, -1, -1):
        positions = table.begins[: len(columns[length + 1])] + length  # of the strings that are longer than `length`
        for span in range(1, min(longest - length, _MAX_PIECE_CHARACTERS) + 1):
            backward[positions] += padded[table.pieces_at[span - 1, positions]] * backward[positions + span]
    expected = np.zeros(len(padded))
    for span, row in enumerate(table.pieces_at, 1):
        weights = forward * padded[row] * backward[span : size + span]
        expected += np.bincount(row, weights, minlength=len(padded))
    return expected[:-1]


def _split_probabilities(table: _PieceTable, probabilities: Floats) -> Floats:
    """Return the total probability of all ways to compose each piece of other pieces, (pieces,); 1 for a single
    character."""
    order = np.argsort(-table.sizes, kind="stable")  # the longest first, as `_forward_probabilities` needs them
    columns = _forward_probabilities(table, table.positions[order], table.sizes[order], probabilities, whole=False)
    totals = np.ones(len(order))
    for column in columns[2:]:  # the last column with a piece has the probability of the whole piece
        totals[order[: len(column)]] = column
    return totals


def _forward_probabilities(
    table: _PieceTable, begins: Ints, lengths: Ints, probabilities: Floats, whole: bool = True
) -> list[Floats]:
    """Return the total probability of the segmentations of the beginning of each string: entry n of the list has the
    beginnings of n characters, (strings of at least n characters,).

    The strings are given by the position of their first character (`begins`) and their `lengths`, both (strings,), and
    sorted by descending length. Without `whole`, the piece that is equal to a string is not used for it.
    """
    padded = np.append(probabilities, 0.0)  # the last is for positions without a piece
    columns = [np.ones(len(begins))]
    for length in range(1, int(lengths[0]) + 1):
        num_longer, num_strings = np.searchsorted(-lengths, [-length, -length + 1])  # > length, >= length characters
        column = np.zeros(num_strings)
        for span in range(1, min(length, _MAX_PIECE_CHARACTERS) + 1):  # of the last piece
            num_used = num_strings if whole or span < length else num_longer
            piece_starts = begins[:num_used] + (length - span)
            piece_probabilities = padded[table.pieces_at[span - 1, piece_starts]]
            column[:num_used] += columns[length - span][:num_used] * piece_probabilities
        columns.append(column)
    return columns


def _probabilities(expected: Floats) -> Floats:
    """Return the probability of each piece from its expected occurrences. The digamma function lowers rare pieces, as
    in sentencepiece (Liang and Klein 2007, "Structured Bayesian Nonparametric Models with Variational Inference")."""
    expected = np.maximum(expected, _MIN_EXPECTED)
    return np.exp(_digamma(expected) - _digamma(expected.sum(keepdims=True)))


def _digamma(x: Floats) -> Floats:
    """Return digamma(x) for x > 0: recurrence and asymptotic series (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    result = np.zeros_like(x)
    for step in range(6):
        result -= 1 / (x + step)
    x = x + 6
    return result + np.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _largest_mask(values: Floats, count: int) -> Bools:
    """Return a mask of the `count` largest values; of equal values, the first are taken. Values are compared in
    float32, because in float64 sums that should be equal differ in their last digits."""
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinite
        order = np.argsort(-values.astype(np.float32), kind="stable")
    chosen = np.zeros(len(values), dtype=np.bool_)
    chosen[order[:count]] = True
    return chosen
