"""Pairs of segments in packed rows, as a pure function of (seed, epoch, piece).

In each epoch, a piece of a document is cut at a randomly chosen start of a sentence or, if no sentence begins inside
it, of a word near its middle. The cut does not change the length of a piece, so rows are planned once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.base.counter_random import random_bits
from domainbert.data.packing import IGNORE_INDEX, Ints, RowPlan
from domainbert.data.splits import PreparedSplit
from domainbert.pretraining.objective import Key
from domainbert.pretraining.objectives.sentence_pairs.sentences import SentenceMarks, positions_where
from domainbert.tokenization.load import DomainTokenizer

_CUT, _LABEL, _PARTNER = ((1 << 24) + number for number in range(3))  # streams of random numbers, used only here
_MIN_TOKENS = 2  # minimum length of a segment
_MAX_RATIO = 8  # a segment has at least 1/8 of the tokens of its piece
_MAX_WORDS = 8  # number of possible cuts of a piece without a sentence start: the words nearest to its middle


class Halves(NamedTuple):
    """Division of all pieces into two segments in one epoch, (pieces,) each."""

    cuts: Ints  # position in the stream where the second segment begins; end of the piece if it is not cut
    partners: Ints  # piece that provides the second segment; by default the piece itself
    labels: Ints  # 1 if the second segment does not follow the first; `IGNORE_INDEX` without a second segment


class Texts(NamedTuple):
    """Texts of some rows, in reading order: single pieces and pairs of segments."""

    rows: Ints  # (texts,) index of the row in the key
    first: Ints  # (texts, 2) start and end of the first segment in the stream
    second: Ints  # (texts, 2) start and end of the second segment; empty for a single piece
    labels: Ints  # (texts,) see `Halves`


@dataclass(frozen=True)
class PairPlan(RowPlan):
    """Plan of rows whose pieces are read as pairs of segments.

    Each epoch draws half of the pairs. With relation `order`, their segments are swapped. With `next`, pairs with
    second segments of similar length exchange these, truncated to the length of the original so that the row has room.
    All exchanges together drop fewer tokens than a row has. Pairs from the same document are not exchanged.
    """

    relation: str
    documents: Ints  # (pieces,) document of each piece
    cuts: Ints  # positions in the stream where a piece may be cut, ascending
    first_cut: Ints  # (pieces,) piece p may be cut at `cuts[first_cut[p] : first_cut[p] + num_cuts[p]]`
    num_cuts: Ints  # (pieces,) 0 for pieces that are too short
    at_sentences: int  # number of pieces that are cut at sentences
    unmaskable: Ints  # positions in the stream that masked LM must not hide, ascending
    epochs_at_once: int  # maximum number of epochs in a batch: two, for each language
    cached_halves: dict[tuple[int, int], Halves] = field(default_factory=dict, compare=False)  # by (seed, epoch)

    @property
    def num_pairs(self) -> int:
        """Number of pieces that become pairs."""
        return int(np.count_nonzero(self.num_cuts))

    @property
    def max_pairs(self) -> int:
        """Maximum number of pairs in a row."""
        return int(self._sum_rows(np.minimum(self.num_cuts, 1)).max(initial=0))

    @property
    @override
    def summary(self) -> str:
        pairs, single = self.num_pairs, len(self.lengths) - self.num_pairs
        at_words = pairs - self.at_sentences
        return (
            f"{super().summary}; {pairs:,} pairs, {at_words:,} of them cut between words where no sentence begins; "
            f"{single:,} texts are too short for a pair"
        )

    def halves(self, seed: int, epoch: int) -> Halves:
        """Return the segments of an epoch; the epochs of a batch are cached."""
        if (seed, epoch) not in self.cached_halves:
            while len(self.cached_halves) >= self.epochs_at_once:
                oldest = next(iter(self.cached_halves))
                del self.cached_halves[oldest]
            self.cached_halves[seed, epoch] = self._draw(seed, epoch)
        return self.cached_halves[seed, epoch]

    def _draw(self, seed: int, epoch: int) -> Halves:
        cuts, pieces = self._draw_cuts(seed, epoch), np.arange(len(self.lengths))
        is_pair = self.num_cuts > 0
        pairs = np.flatnonzero(is_pair)
        shuffled_pairs = pairs[np.argsort(random_bits(_LABEL, seed, epoch, pairs), kind="stable")]
        half = shuffled_pairs[: len(pairs) // 2]  # the pairs to swap or to exchange
        labels = np.where(is_pair, 0, IGNORE_INDEX)
        if self.relation == "order":
            labels[half] = 1
            return Halves(cuts, pieces, labels)
        partners = self._exchange_partners(half, cuts, random_bits(_PARTNER, seed, epoch, half))
        labels[partners != pieces] = 1  # a pair of `half` without a partner keeps its second segment, and label 0
        return Halves(cuts, partners, labels)

    def _draw_cuts(self, seed: int, epoch: int) -> Ints:
        """Draw where the second segment of each piece begins, or its end if it is too short to be cut: (pieces,)."""
        cuts = self.starts + self.lengths  # the ends
        pairs = np.flatnonzero(self.num_cuts)
        bits = random_bits(_CUT, seed, epoch, pairs)
        cut_numbers = (bits % self.num_cuts[pairs].astype(np.uint64)).astype(np.int64)
        cuts[pairs] = self.cuts[self.first_cut[pairs] + cut_numbers]
        return cuts

    def _exchange_partners(self, half: Ints, cuts: Ints, bits: NDArray[np.uint64]) -> Ints:
        """Return the piece that provides the second segment of each piece: (pieces,).

        Pieces of `half` are sorted by the length of their second segments, in random order (`bits`) for equal lengths.
        Two neighbours exchange their second segments, unless they are from the same document. Other pieces keep theirs.
        """
        second_lengths = (self.starts + self.lengths - cuts)[half]
        ordered = half[np.lexsort((bits, second_lengths))]  # the last key is the primary one
        even_number = len(ordered) // 2 * 2
        neighbours = ordered[:even_number].reshape(-1, 2)
        documents = self.documents[neighbours]
        left, right = neighbours[documents[:, 0] != documents[:, 1]].T
        partners = np.arange(len(self.lengths))
        partners[left], partners[right] = right, left
        return partners

    def pieces_read(self, key: Key) -> Ints:
        """Return the indices of the pieces in the rows of a key, and of their partners: (pieces + partners,)."""
        pieces = self.pieces_of(key.rows)
        epochs = np.repeat(key.epochs, self.row_offsets[key.rows + 1] - self.row_offsets[key.rows])  # of each piece
        partners = []
        for epoch in np.unique(epochs).tolist():
            partners.append(self.halves(key.seed, epoch).partners[pieces[epochs == epoch]])
        return np.concatenate([pieces, *partners])

    def texts(self, key: Key) -> Texts:
        """Return the texts in the rows of a key, with the cuts of their epoch."""
        pieces_per_row = self.row_offsets[key.rows + 1] - self.row_offsets[key.rows]
        pieces, rows = self.pieces_of(key.rows), np.repeat(np.arange(len(key.rows)), pieces_per_row)
        first = np.empty((len(pieces), 2), dtype=np.int64)
        second, labels = np.empty_like(first), np.empty(len(pieces), dtype=np.int64)
        for epoch in np.unique(key.epochs).tolist():
            selected = key.epochs[rows] == epoch
            halves = self.halves(key.seed, epoch)
            first[selected], second[selected], labels[selected] = self._segments(pieces[selected], halves)
        return Texts(rows, first, second, labels)

    def _segments(self, pieces: Ints, halves: Halves) -> tuple[Ints, Ints, Ints]:
        """Return start and end of the first and of the second segment, (pieces, 2) each, and the labels (pieces,)."""
        stops = self.starts + self.lengths
        cuts, partners, labels = (values[pieces] for values in halves)
        # the second segment of the partner, truncated to the length of the original
        begin = halves.cuts[partners]
        original_length = stops[pieces] - cuts
        end = np.minimum(stops[partners], begin + original_length)
        first = np.stack([self.starts[pieces], cuts], axis=1)
        second = np.stack([begin, end], axis=1)
        swapped = ((labels == 1) & (self.relation == "order"))[:, None]
        return np.where(swapped, second, first), np.where(swapped, first, second), labels

    def num_maskable(self, texts: Texts, num_rows: int) -> Ints:
        """Return the number of maskable tokens in each row: (rows,)."""
        segments = np.stack([texts.first, texts.second])  # (2, texts, 2): start and end
        starts, ends = segments[..., 0], segments[..., 1]
        sizes = ends - starts
        unmaskable = np.searchsorted(self.unmaskable, ends) - np.searchsorted(self.unmaskable, starts)
        maskable = np.zeros(num_rows, dtype=np.int64)
        np.add.at(maskable, texts.rows, (sizes - unmaskable).sum(axis=0))
        return maskable


def plan_pairs(plan: RowPlan, relation: str, split: PreparedSplit, tokenizer: DomainTokenizer) -> PairPlan:
    """Return a plan of pairs for a plan of rows that has room for the special tokens of a pair."""
    # first and last position where a piece may be cut; last < first for pieces that are too short
    min_tokens = np.maximum(np.ceil(plan.lengths / _MAX_RATIO).astype(np.int64), _MIN_TOKENS)
    first, last = plan.starts + min_tokens, plan.starts + plan.lengths - min_tokens
    # cut at sentences, or at words where no sentence begins between these positions
    sentences = positions_where(split, SentenceMarks.of(tokenizer).starts)
    _, num_sentences = _cuts_in_ranges(sentences, first, last)
    cut_at_words = np.flatnonzero((num_sentences == 0) & (first <= last))
    bounds = zip(first[cut_at_words].tolist(), last[cut_at_words].tolist(), strict=True)
    words = [_word_starts(split, *bound) for bound in bounds]
    cuts = np.sort(np.concatenate([sentences, *words]))
    first_cut, num_cuts = _cuts_in_ranges(cuts, first, last)
    num_cut_at_words = np.count_nonzero(num_cuts[cut_at_words])
    num_languages = 1 if split.languages is None else int(split.languages.max()) + 1  # epochs are counted by language
    specials = np.asarray(sorted(tokenizer.special_ids))
    return PairPlan(
        **vars(plan),
        relation=relation,
        documents=np.searchsorted(split.document_offsets, plan.starts, side="right") - 1,
        cuts=cuts,
        first_cut=first_cut,
        num_cuts=num_cuts,
        at_sentences=int(np.count_nonzero(num_cuts) - num_cut_at_words),
        epochs_at_once=2 * num_languages,
        unmaskable=positions_where(split, lambda ids: np.isin(ids, specials)),
    )


def _cuts_in_ranges(cuts: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return, for each range [low, high], the index of its first cut and its number of cuts; `cuts` ascend."""
    first = np.searchsorted(cuts, low)
    return first, np.maximum(np.searchsorted(cuts, high, side="right") - first, 0)


def _word_starts(split: PreparedSplit, low: int, high: int) -> Ints:
    """Return the word starts in [low, high] that are nearest to its middle, nearest first, `_MAX_WORDS` at most."""
    starts = low + np.flatnonzero(split.take_starts(low, high + 1))
    doubled_distances = np.abs(2 * starts - (low + high))  # from the middle; integers
    return starts[np.argsort(doubled_distances, kind="stable")[:_MAX_WORDS]]
