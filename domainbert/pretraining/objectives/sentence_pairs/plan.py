"""Pairs of segments in packed rows, as a pure function of (seed, epoch, piece).

A piece of a document is cut in two, anew in every pass: where a sentence begins or, where the tokens show none but at
its ends, where a word near its middle does. A row is as long as its pieces, so that it holds whatever cuts are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.base.counter_random import random_bits
from domainbert.data.packing import Ints, RowPlan
from domainbert.data.splits import PreparedSplit
from domainbert.data.types import IGNORED
from domainbert.pretraining.objective import Key
from domainbert.pretraining.objectives.sentence_pairs.sentences import places, sentence_starts
from domainbert.tokenization.load import DomainTokenizer

_CUT, _LABEL, _PARTNER = ((1 << 24) + number for number in range(3))  # streams of random numbers, far from the others
_LEAST = 2  # tokens of a segment
_SHARE = 8  # a segment has at least an eighth of the piece
_MOST_WORDS = 8  # places where a piece without a sentence may be cut, those nearest to its middle


class Halves(NamedTuple):
    """A pass over all pieces (pieces,)."""

    cuts: Ints  # place in the stream where the second segment begins; the piece's end where it is not cut
    partners: Ints  # the piece whose second segment is read, most often its own
    labels: Ints  # 1 where the second segment does not follow the first; `IGNORED` where there is one alone


class Texts(NamedTuple):
    """The texts of some rows, in their order: single pieces and pairs of segments, as they are read."""

    rows: Ints  # (texts,) the place of each one's row in the key
    first: Ints  # (texts, 2) from where to where in the stream the first segment stands
    second: Ints  # (texts, 2) the second one; empty in a single piece
    labels: Ints  # (texts,) see `Halves`


@dataclass(frozen=True)
class PairPlan(RowPlan):
    """Plan of rows whose pieces are read in pairs of segments.

    In each pass half of the pairs are drawn. Of a relation `order` they are read with the second segment first. Of
    `next` they exchange their second segments in couples, by their length: each takes of the other's as
    much as it had of its own, so that it fits the row. All couples together leave out fewer tokens than a row has. A
    couple from one document stays as it is.
    """

    relation: str
    documents: Ints  # (pieces,) the document of each
    cuts: Ints  # places in the stream where a piece may be cut, ascending
    first_cut: Ints  # (pieces,) piece p may be cut at `cuts[first_cut[p] : first_cut[p] + num_cuts[p]]`
    num_cuts: Ints  # (pieces,) 0 where it is too short
    at_sentences: int  # pieces that are cut where a sentence begins
    unmaskable: Ints  # places in the stream that masked LM may not hide, ascending
    passes_at_once: int  # that a batch may span: two, of each language if there are several
    drawn: dict[tuple[int, int], Halves] = field(default_factory=dict, compare=False)

    @property
    def num_pairs(self) -> int:
        """Pieces that become pairs."""
        return int(np.count_nonzero(self.num_cuts))

    @property
    def most_pairs(self) -> int:
        """Pairs in the row that has most of them."""
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
        """The whole pass; as many are remembered as a batch may span."""
        if (seed, epoch) not in self.drawn:
            for old in list(self.drawn)[: 1 - self.passes_at_once]:
                del self.drawn[old]
            self.drawn[seed, epoch] = self._draw(seed, epoch)
        return self.drawn[seed, epoch]

    def _draw(self, seed: int, epoch: int) -> Halves:
        pieces = np.arange(len(self.lengths))
        paired = self.num_cuts > 0
        pairs = np.flatnonzero(paired)
        chosen = random_bits(_CUT, seed, epoch, pieces) % np.maximum(self.num_cuts, 1).astype(np.uint64)
        cuts = self.starts + self.lengths
        cuts[paired] = self.cuts[(self.first_cut + chosen.astype(np.int64))[paired]]
        half = pairs[np.argsort(random_bits(_LABEL, seed, epoch, pairs), kind="stable")][: len(pairs) // 2]
        labels = np.where(paired, 0, IGNORED)
        if self.relation == "order":
            labels[half] = 1
            return Halves(cuts, pieces, labels)
        partners = self._exchanged(half, cuts, random_bits(_PARTNER, seed, epoch, half))
        labels[partners != pieces] = 1
        return Halves(cuts, partners, labels)

    def _exchanged(self, half: Ints, cuts: Ints, bits: NDArray[np.uint64]) -> Ints:
        """(pieces,) partners: each two neighbours of this half, by the length of their second segments, then chance."""
        rest = (self.starts + self.lengths - cuts)[half]
        ordered = half[np.lexsort((bits, rest))]
        one, other = ordered[: len(ordered) // 2 * 2].reshape(-1, 2).T
        apart = self.documents[one] != self.documents[other]
        partners = np.arange(len(self.lengths))
        partners[one[apart]], partners[other[apart]] = other[apart], one[apart]
        return partners

    def pieces_read(self, key: Key) -> Ints:
        """The pieces in the rows of a key, and those whose second segments are read there: (pieces,)."""
        pieces = self.pieces_of(key.rows)
        epochs = np.repeat(key.epochs, self.row_offsets[key.rows + 1] - self.row_offsets[key.rows])
        drawn = {epoch: self.halves(key.seed, epoch).partners for epoch in np.unique(epochs).tolist()}
        return np.concatenate([pieces, *(drawn[epoch][pieces[epochs == epoch]] for epoch in drawn)])

    def texts(self, key: Key) -> Texts:
        """The texts in the rows of a key."""
        counts = self.row_offsets[key.rows + 1] - self.row_offsets[key.rows]
        rows = np.repeat(np.arange(len(key.rows)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        pieces = self.row_offsets[key.rows][rows] + within
        first, second = np.empty((2, len(pieces), 2), dtype=np.int64)
        labels = np.empty(len(pieces), dtype=np.int64)
        for epoch in np.unique(key.epochs).tolist():
            here = key.epochs[rows] == epoch
            first[here], second[here], labels[here] = self._segments(pieces[here], self.halves(key.seed, epoch))
        return Texts(rows, first, second, labels)

    def _segments(self, pieces: Ints, halves: Halves) -> tuple[Ints, Ints, Ints]:
        stops = self.starts + self.lengths
        cuts, partners, labels = (part[pieces] for part in halves)
        begin = halves.cuts[partners]
        end = np.minimum(stops[partners], begin + stops[pieces] - cuts)
        first, second = np.stack([self.starts[pieces], cuts], axis=1), np.stack([begin, end], axis=1)
        swapped = ((labels == 1) & (self.relation == "order"))[:, None]
        return np.where(swapped, second, first), np.where(swapped, first, second), labels

    def num_maskable(self, texts: Texts, num_rows: int) -> Ints:
        """(rows,) tokens of each row that masked LM may hide, of the texts of so many rows."""
        segments = np.stack([texts.first, texts.second])
        sizes, hidden = np.diff(segments)[..., 0], np.diff(np.searchsorted(self.unmaskable, segments))[..., 0]
        found = np.zeros(num_rows, dtype=np.int64)
        np.add.at(found, texts.rows, (sizes - hidden).sum(axis=0))
        return found


def pair_plan(plan: RowPlan, relation: str, split: PreparedSplit, tokenizer: DomainTokenizer) -> PairPlan:
    """The plan of pairs on the pieces of a plan of rows, which leaves room for the special tokens of a pair."""
    stops = plan.starts + plan.lengths
    margin = np.maximum(-(-plan.lengths // _SHARE), _LEAST)
    low, high = plan.starts + margin, stops - margin
    sentences = sentence_starts(split, tokenizer)
    lacking = np.flatnonzero((_between(sentences, low, high)[1] == 0) & (low <= high))
    words = [_word_starts(split, *bounds) for bounds in zip(low[lacking].tolist(), high[lacking].tolist(), strict=True)]
    cuts = np.sort(np.concatenate([sentences, *words]))
    first_cut, num_cuts = _between(cuts, low, high)
    specials = np.asarray(sorted(tokenizer.special_ids))
    return PairPlan(
        **vars(plan),
        relation=relation,
        documents=np.searchsorted(split.document_offsets, plan.starts, side="right") - 1,
        cuts=cuts,
        first_cut=first_cut,
        num_cuts=num_cuts,
        at_sentences=int(np.count_nonzero(num_cuts)) - int(np.count_nonzero(num_cuts[lacking])),
        passes_at_once=2 * (1 if split.languages is None else int(split.languages.max()) + 1),
        unmaskable=places(split, lambda ids: np.isin(ids, specials)),
    )


def _between(cuts: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """The first of the ascending cuts in each range, ends included, and how many there are."""
    first = np.searchsorted(cuts, low)
    return first, np.maximum(np.searchsorted(cuts, high, side="right") - first, 0)


def _word_starts(split: PreparedSplit, low: int, high: int) -> Ints:
    """The places from `low` to `high` at which a word begins that are nearest to their middle."""
    found = low + np.flatnonzero(split.take_starts(low, high + 1))
    return found[np.argsort(np.abs(2 * found - low - high), kind="stable")[:_MOST_WORDS]]
