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
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"

_MAX_PIECE = 16  # characters
_MOST_SEEDS = 1_000_000
_KEPT_SHARE = 0.9  # sentencepiece: 0.75, which is faster and needs more pieces per word
_EASE = 1.1  # the last tenth is removed by probability, not by loss
_SUB_ITERATIONS = 2
_LEAST_EXPECTED = 0.5  # expected occurrences of a piece
_DECIMALS = 6  # of a score
_END = "\n"  # after each string


def learn_pieces(
    words: Mapping[str, int], alphabet: Sequence[str], size: int, min_frequency: int
) -> list[tuple[str, float]]:
    """Return up to `size` pieces of counted words with their log probabilities (natural), the most probable first.

    Words have at most 32 characters, all in the alphabet and no white space. Every character of the alphabet is a
    piece; other pieces have at most 16 characters and occur `min_frequency` times. Ties: the shorter piece first.
    """
    spellings = _spellings({**dict.fromkeys(alphabet, 0), **words}, min_frequency)
    expected = spellings.occurrences
    while True:
        for _ in range(_SUB_ITERATIONS):
            expected = _expected(spellings, _probabilities(expected))
            kept = (expected >= _LEAST_EXPECTED) | spellings.single
            spellings, expected = spellings.only(kept), expected[kept]
        probabilities = _probabilities(expected)
        enough = int(size * _EASE)
        if len(expected) <= max(enough, len(alphabet)):
            break
        loss = np.where(spellings.single, np.inf, expected * np.log(probabilities / _without(spellings, probabilities)))
        kept = _largest_mask(loss, max(enough, int(len(expected) * _KEPT_SHARE)))
        spellings, expected = spellings.only(kept), expected[kept]
    scores = np.round(np.log(probabilities), _DECIMALS)
    best = np.flatnonzero(_largest_mask(np.where(spellings.single, np.inf, scores), size))
    ordered = best[np.argsort(-scores[best], kind="stable")]
    return [(spellings.piece(number), float(scores[number])) for number in ordered.tolist()]


@dataclass(frozen=True)
class _Spellings:
    """All pieces at all positions of a list of strings, sorted by descending length; P is the number of positions.

    Each string takes one position per character and one for its end. Pieces are numbered by length, then by their
    characters.
    """

    text: str  # (P,) the strings, each with an end
    begins: Ints  # (strings,)
    lengths: Ints  # (strings,) characters
    counts: Floats  # (strings,) occurrences
    pieces_at: NDArray[np.int32]
    """(16, P) Piece of 1, 2, ... characters that begins at each position; the number of pieces if there is none."""

    positions: Ints  # (pieces,) position of the first occurrence
    sizes: Ints  # (pieces,) characters
    occurrences: Floats  # (pieces,) as a substring

    @property
    def single(self) -> Bools:
        """(pieces,) Whether a piece is one character."""
        return self.sizes == 1

    def piece(self, number: int) -> str:
        return self.text[self.positions[number] : self.positions[number] + self.sizes[number]]

    def only(self, kept: Bools) -> _Spellings:
        """Select pieces and renumber them."""
        numbers = np.full(len(kept) + 1, np.count_nonzero(kept), dtype=np.int32)
        numbers[:-1][kept] = np.arange(np.count_nonzero(kept))
        return replace(
            self,
            pieces_at=numbers[self.pieces_at],
            positions=self.positions[kept],
            sizes=self.sizes[kept],
            occurrences=self.occurrences[kept],
        )


class _Level(NamedTuple):
    """Frequent strings of one length."""

    at: Ints  # (n,) positions where a frequent string begins
    which: Ints  # (n,) the string at each position
    first: Ints  # (strings,) position of the first occurrence
    times: Floats  # (strings,) occurrences
    parents: Ints  # (strings,) the string without its last character


def _spellings(words: Mapping[str, int], min_frequency: int) -> _Spellings:
    """Seed pieces: all single characters, and up to 1,000,000 strings with the largest length x occurrences that occur
    `min_frequency` times and are not always followed by the same character."""
    ordered = sorted(words, key=lambda word: (-len(word), word))
    lengths = np.array([len(word) for word in ordered], dtype=np.int64)
    counts = np.array([words[word] for word in ordered], dtype=np.float64)
    text = "".join(word + _END for word in ordered)
    levels = list(_levels(text, np.repeat(counts, lengths + 1), min_frequency))
    sizes = np.repeat(np.arange(1, len(levels) + 1), [len(level.first) for level in levels])
    pieces_at = np.full((_MAX_PIECE, len(text)), len(sizes), dtype=np.int32)
    number = 0
    for row, level in zip(pieces_at, levels, strict=False):
        row[level.at] = number + level.which
        number += len(level.first)
    positions, times = (np.concatenate([getattr(level, name) for level in levels]) for name in ("first", "times"))
    begins = np.cumsum(lengths + 1) - lengths - 1
    spellings = _Spellings(text, begins, lengths, counts, pieces_at, positions, sizes, times)
    branching = np.concatenate([_branching(*pair) for pair in zip_longest(levels, levels[1:])])
    seeds = branching | spellings.single
    weights = np.where(spellings.single, np.inf, np.where(seeds, times * sizes, -np.inf))
    return spellings.only(seeds & _largest_mask(weights, _MOST_SEEDS))


def _levels(text: str, weights: Floats, min_frequency: int) -> Iterator[_Level]:
    """Yield the frequent strings of 1, 2, ... up to 16 characters; all single characters count as frequent.

    `weights` (P,) are the occurrences of the word at each position.
    """
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    characters = np.unique(points, return_inverse=True)[1].astype(np.int64)
    before = np.full(len(text) + 1, -1, dtype=np.int64)  # string of the previous level at each position
    at = np.flatnonzero(points != ord(_END))
    keys = characters[at]
    for size in range(1, _MAX_PIECE + 1):
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        times = np.bincount(which, weights[at], len(first)).astype(np.float64)
        frequent = (times >= min_frequency) | (size == 1)
        numbers = np.where(frequent, np.cumsum(frequent) - 1, -1)
        first, times, kept = at[first[frequent]], times[frequent], frequent[which]
        at, which = at[kept], numbers[which[kept]]
        yield _Level(at, which, first, times, before[first])
        before[:] = -1
        before[at] = which
        at = at[before[at + 1] >= 0]
        if not len(at):
            return
        keys = before[at] * (characters.max() + 1) + characters[at + size]


def _branching(level: _Level, longer: _Level | None) -> Bools:
    """(strings,) Whether a string is not always followed by the same character."""
    branching = np.ones(len(level.first), dtype=np.bool_)
    if longer is not None:
        branching[longer.parents[longer.times == level.times[longer.parents]]] = False
    return branching


def _expected(spellings: _Spellings, probabilities: Floats) -> Floats:
    """(pieces,) Expected occurrences of each piece over all segmentations: forward-backward algorithm."""
    columns = _forward(spellings, spellings.begins, spellings.lengths, probabilities)
    padded = np.append(probabilities, 0.0)
    size, longest = len(spellings.text), len(columns) - 1
    forward, backward = np.zeros(size), np.zeros(size + _MAX_PIECE)
    for length, column in enumerate(columns):
        forward[spellings.begins[: len(column)] + length] = column
    ends = spellings.begins + spellings.lengths
    backward[ends] = spellings.counts / forward[ends]
    for length in range(longest - 1, -1, -1):
        at = spellings.begins[: len(columns[length + 1])] + length
        for span in range(1, min(longest - length, _MAX_PIECE) + 1):
            backward[at] += padded[spellings.pieces_at[span - 1, at]] * backward[at + span]
    expected = np.zeros(len(padded))
    for span, row in enumerate(spellings.pieces_at, 1):
        weights = forward * padded[row] * backward[span : size + span]
        expected += np.bincount(row, weights, minlength=len(padded))
    return expected[:-1]


def _without(spellings: _Spellings, probabilities: Floats) -> Floats:
    """(pieces,) Probability of each piece as a sequence of other pieces; 1 for a single character."""
    order = np.argsort(-spellings.sizes, kind="stable")
    sizes = spellings.sizes[order]
    columns = _forward(spellings, spellings.positions[order], sizes, probabilities, whole=False)
    others = np.ones(len(order))
    for size in range(2, len(columns)):
        indices = np.flatnonzero(sizes == size)
        others[order[indices]] = columns[size][indices]
    return others


def _forward(
    spellings: _Spellings, begins: Ints, lengths: Ints, probabilities: Floats, whole: bool = True
) -> list[Floats]:
    """For n = 0, 1, 2, ..., the total probability of the first n characters of each string with at least n characters.

    Strings are sorted by descending length. Without `whole`, the piece that is equal to a string is not used for it.
    """
    padded = np.append(probabilities, 0.0)
    columns = [np.ones(len(begins))]
    for length in range(1, int(lengths[0]) + 1):
        number = int(np.searchsorted(-lengths, -length, side="right"))
        column = np.zeros(number)
        for span in range(1, min(length, _MAX_PIECE) + 1):
            if span == length and not whole:
                number = int(np.searchsorted(-lengths, -length, side="left"))
            at = begins[:number] + (length - span)
            column[:number] += columns[length - span][:number] * padded[spellings.pieces_at[span - 1, at]]
        columns.append(column)
    return columns


def _probabilities(expected: Floats) -> Floats:
    """Probabilities with the digamma function, as in sentencepiece, which lowers rare pieces (Liang and Klein 2007,
    "Structured Bayesian Nonparametric Models with Variational Inference")."""
    expected = np.maximum(expected, _LEAST_EXPECTED)
    return np.exp(_digamma(expected) - _digamma(expected.sum(keepdims=True)))


def _digamma(x: Floats) -> Floats:
    """Digamma for x > 0: recurrence and asymptotic series (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    result = np.zeros_like(x)
    for step in range(6):
        result -= 1 / (x + step)
    x = x + 6
    return result + np.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _largest_mask(values: Floats, count: int) -> Bools:
    """Mask of the `count` largest values; ties: the first. Compared in float32, because in float64 sums that should be
    equal differ in their last digits."""
    with np.errstate(over="ignore"):
        order = np.argsort(-values.astype(np.float32), kind="stable")
    chosen = np.zeros(len(values), dtype=np.bool_)
    chosen[order[:count]] = True
    return chosen
