"""Learning of a Unigram vocabulary: which pieces, and how probable each is (Kudo 2018, "Subword Regularization",
section 3.2).

At first every string that occurs often enough is a piece. Expectation maximisation says how probable each is, over all
ways to spell the words; then the pieces that would be missed least are given up, a tenth at a time. Constants are those
of sentencepiece, unless said.

The trainers of `tokenizers` and sentencepiece add up in the order of their hash tables and threads: the same text gives
other scores, and where pieces are level, other pieces. Here all sums are in float64 and in the order of the words.
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
_KEPT_AT_ONCE = 0.9  # sentencepiece: 0.75, which is faster and takes more pieces for a word
_EASE = 1.1  # the last tenth is given up for its probability, not for its loss
_SUB_ITERATIONS = 2
_LEAST_EXPECTED = 0.5  # occurrences of a piece that is kept
_DECIMALS = 6  # of a score
_END = "\n"  # behind each string


def learn_pieces(
    words: Mapping[str, int], alphabet: Sequence[str], size: int, min_frequency: int
) -> list[tuple[str, float]]:
    """The `size` best pieces of counted words with the natural logarithm of their probability, or all there are.

    Words have at most 32 characters, each of the alphabet, and none is white space. Every character of the alphabet is
    a piece; other pieces have at most 16 characters and occur `min_frequency` times. The most probable comes first; of
    equal ones the shorter.
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
        kept = _largest(loss, max(enough, int(len(expected) * _KEPT_AT_ONCE)))
        spellings, expected = spellings.only(kept), expected[kept]
    scores = np.round(np.log(probabilities), _DECIMALS)
    best = np.flatnonzero(_largest(np.where(spellings.single, np.inf, scores), size))
    ordered = best[np.argsort(-scores[best], kind="stable")]
    return [(spellings.piece(number), float(scores[number])) for number in ordered.tolist()]


@dataclass(frozen=True)
class _Spellings:
    """All pieces at all places of a list of strings, the longest first; P is the number of places.

    A string begins at a place and has one more behind its last character. Pieces are numbered by length, those of one
    length by their characters.
    """

    text: str  # (P,) the strings, with an end behind each
    begins: Ints  # (strings,)
    lengths: Ints  # (strings,) characters
    counts: Floats  # (strings,) occurrences
    found: NDArray[np.int32]
    """(16, P) The piece of 1, 2, ... characters that begins at each place; the number of pieces where there is none."""

    places: Ints  # (pieces,) where each occurs
    sizes: Ints  # (pieces,) characters
    occurrences: Floats  # (pieces,) of each as a string

    @property
    def single(self) -> Bools:
        """(pieces,) Whether a piece is one character."""
        return self.sizes == 1

    def piece(self, number: int) -> str:
        """The characters of a piece."""
        return self.text[self.places[number] : self.places[number] + self.sizes[number]]

    def only(self, kept: Bools) -> _Spellings:
        """With some of the pieces, numbered anew."""
        numbers = np.full(len(kept) + 1, np.count_nonzero(kept), dtype=np.int32)
        numbers[:-1][kept] = np.arange(np.count_nonzero(kept))
        return replace(
            self,
            found=numbers[self.found],
            places=self.places[kept],
            sizes=self.sizes[kept],
            occurrences=self.occurrences[kept],
        )


class _Level(NamedTuple):
    """The strings of one length that are frequent enough."""

    at: Ints  # (n,) places where one of them is
    which: Ints  # (n,) which one
    first: Ints  # (strings,) the first place of each
    times: Floats  # (strings,) occurrences of each
    parents: Ints  # (strings,) the string of one character less that each begins with


def _spellings(words: Mapping[str, int], min_frequency: int) -> _Spellings:
    """With the seeds: strings that occur `min_frequency` times and do not all go on with the same character, the
    1,000,000 with the most characters in all of their occurrences; and all single characters."""
    ordered = sorted(words, key=lambda word: (-len(word), word))
    lengths = np.array([len(word) for word in ordered], dtype=np.int64)
    counts = np.array([words[word] for word in ordered], dtype=np.float64)
    text = "".join(word + _END for word in ordered)
    levels = list(_levels(text, np.repeat(counts, lengths + 1), min_frequency))
    sizes = np.repeat(np.arange(1, len(levels) + 1), [len(level.first) for level in levels])
    found = np.full((_MAX_PIECE, len(text)), len(sizes), dtype=np.int32)
    number = 0
    for row, level in zip(found, levels, strict=False):
        row[level.at] = number + level.which
        number += len(level.first)
    places, times = (
        np.concatenate(columns) for columns in zip(*((one.first, one.times) for one in levels), strict=True)
    )
    begins = np.cumsum(lengths + 1) - lengths - 1
    spellings = _Spellings(text, begins, lengths, counts, found, places, sizes, times)
    branching = np.concatenate([_branching(*pair) for pair in zip_longest(levels, levels[1:])])
    seeds = branching | spellings.single
    worth = np.where(spellings.single, np.inf, np.where(seeds, times * sizes, -np.inf))
    return spellings.only(seeds & _largest(worth, _MOST_SEEDS))


def _levels(text: str, weights: Floats, min_frequency: int) -> Iterator[_Level]:
    """For strings of 1, 2, ... 16 characters, as long as there are any; those of one are all frequent enough.

    `weights` (P,) are the occurrences of the string at each place.
    """
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    characters = np.unique(points, return_inverse=True)[1].astype(np.int64)
    before = np.full(len(text) + 1, -1, dtype=np.int64)  # which string of one character less is at each place
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
    """(strings,) Whether a string goes on with several characters, or ends."""
    branching = np.ones(len(level.first), dtype=np.bool_)
    if longer is not None:
        branching[longer.parents[longer.times == level.times[longer.parents]]] = False
    return branching


def _expected(spellings: _Spellings, probabilities: Floats) -> Floats:
    """(pieces,) Expected occurrences of each piece over all ways to spell the strings: forward-backward."""
    columns = _forward(spellings, spellings.begins, spellings.lengths, probabilities)
    known = np.append(probabilities, 0.0)
    size, longest = len(spellings.text), len(columns) - 1
    forward, backward = np.zeros(size), np.zeros(size + _MAX_PIECE)
    for length, column in enumerate(columns):
        forward[spellings.begins[: len(column)] + length] = column
    ends = spellings.begins + spellings.lengths
    backward[ends] = spellings.counts / forward[ends]
    for length in range(longest - 1, -1, -1):
        at = spellings.begins[: len(columns[length + 1])] + length
        for span in range(1, min(longest - length, _MAX_PIECE) + 1):
            backward[at] += known[spellings.found[span - 1, at]] * backward[at + span]
    expected = np.zeros(len(known))
    for span, row in enumerate(spellings.found, 1):
        weights = forward * known[row] * backward[span : size + span]
        expected += np.bincount(row, weights, minlength=len(known))
    return expected[:-1]


def _without(spellings: _Spellings, probabilities: Floats) -> Floats:
    """(pieces,) The probability that the other pieces spell each piece; 1 for a single character."""
    order = np.argsort(-spellings.sizes, kind="stable")
    sizes = spellings.sizes[order]
    columns = _forward(spellings, spellings.places[order], sizes, probabilities, whole=False)
    others = np.ones(len(order))
    for size in range(2, len(columns)):
        of_size = np.flatnonzero(sizes == size)
        others[order[of_size]] = columns[size][of_size]
    return others


def _forward(
    spellings: _Spellings, begins: Ints, lengths: Ints, probabilities: Floats, whole: bool = True
) -> list[Floats]:
    """For 0, 1, 2, ... characters the probability of all spellings of the first so many, for each string that has them.

    The strings are the longest first. Unless `whole`, none of them is spelt as one piece.
    """
    known = np.append(probabilities, 0.0)
    columns = [np.ones(len(begins))]
    for length in range(1, int(lengths[0]) + 1):
        number = int(np.searchsorted(-lengths, -length, side="right"))
        column = np.zeros(number)
        for span in range(1, min(length, _MAX_PIECE) + 1):
            if span == length and not whole:
                number = int(np.searchsorted(-lengths, -length, side="left"))
            at = begins[:number] + (length - span)
            column[:number] += columns[length - span][:number] * known[spellings.found[span - 1, at]]
        columns.append(column)
    return columns


def _probabilities(expected: Floats) -> Floats:
    """As sentencepiece does, by the digamma function, which keeps rare pieces rare (Liang and Klein 2007, "Structured
    Bayesian Nonparametric Models with Variational Inference")."""
    expected = np.maximum(expected, _LEAST_EXPECTED)
    return np.exp(_digamma(expected) - _digamma(expected.sum(keepdims=True)))


def _digamma(x: Floats) -> Floats:
    """By its recurrence and its asymptotic series (Abramowitz and Stegun, 6.3.5 and 6.3.18), for x > 0."""
    result = np.zeros_like(x)
    for step in range(6):
        result -= 1 / (x + step)
    x = x + 6
    return result + np.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _largest(values: Floats, count: int) -> Bools:
    """Places of the `count` largest values; of equal ones the first. In float32, in which equal ones are equal: in
    float64 the last digits of sums that should be the same differ."""
    with np.errstate(over="ignore"):
        order = np.argsort(-values.astype(np.float32), kind="stable")
    chosen = np.zeros(len(values), dtype=np.bool_)
    chosen[order[:count]] = True
    return chosen
