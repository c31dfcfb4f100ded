"""Packing: several texts back to back in rows of fixed length, with almost no padding."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.template import Template

Ints = NDArray[np.int64]
Text = NDArray[np.integer] | tuple[NDArray[np.integer], NDArray[np.integer]]  # ids without special tokens, or a pair
_MAX_TEXTS = 1 << 32  # of a row or an example


def best_fit_decreasing(lengths: Ints, capacity: int) -> Ints:
    """Return the row of each item (items,) when items are packed longest first, each in the fullest row with room.

    Ties: items of equal length in order; of equally full rows the row that was filled last. Rows are numbered in the
    order in which they are opened. No length may exceed the capacity.
    """
    assert lengths.size == 0 or lengths.max() <= capacity
    rows = np.empty(len(lengths), dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    # An item that leaves no room for the shortest item is alone in its row: most items if documents are long.
    shortest = int(lengths.min(initial=capacity))
    num_alone = int(np.searchsorted(-lengths[order], -(capacity - shortest), side="left"))
    rows[order[:num_alone]] = np.arange(num_alone)
    open_rows: list[list[int]] = [[] for _ in range(capacity + 1)]  # by free space; the row filled last at the end
    spaces: list[int] = []  # free spaces that occur, ascending
    count = num_alone
    for item in order[num_alone:].tolist():
        length = int(lengths[item])
        index = bisect_left(spaces, length)
        if index == len(spaces):
            row, free = count, capacity
            count += 1
        else:
            free = spaces[index]
            row = open_rows[free].pop()
            if not open_rows[free]:
                del spaces[index]
        rows[item] = row
        if not open_rows[free - length]:
            insort(spaces, free - length)
        open_rows[free - length].append(row)
    return rows


@dataclass(frozen=True)
class RowPlan:
    """Plan of packed rows: the pieces (parts of documents in the token stream) of each row."""

    starts: Ints  # (pieces,) position of each piece in the stream; the pieces of a row are adjacent in this array
    lengths: Ints  # (pieces,) tokens, without special tokens
    maskable: Ints  # (pieces,) tokens that masked LM may mask: all except [UNK]
    row_offsets: Ints  # (rows + 1,) row r has the pieces `row_offsets[r]:row_offsets[r + 1]`
    row_length: int  # tokens
    extra: int  # special tokens per piece

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.row_offsets) - 1

    @cached_property
    def text_tokens(self) -> Ints:
        """(rows,) tokens of each row, without special tokens and padding."""
        return self._sum_rows(self.lengths)

    @cached_property
    def maskable_tokens(self) -> Ints:
        """(rows,) tokens of each row that masked LM may mask."""
        return self._sum_rows(self.maskable)

    def _sum_rows(self, values: Ints) -> Ints:
        return np.add.reduceat(values, self.row_offsets[:-1]) if self.num_rows else values

    def pieces_of(self, rows: Ints) -> Ints:
        """Return the indices of the pieces in some rows, row by row: (pieces in these rows,)."""
        return concatenated_ranges(self.row_offsets[rows], self.row_offsets[rows + 1] - self.row_offsets[rows])

    @property
    def fullness(self) -> float:
        """Share of the positions that are not padding."""
        used = int(self.lengths.sum()) + self.extra * len(self.lengths)
        return used / max(self.num_rows * self.row_length, 1)

    @property
    def summary(self) -> str:
        """Number, length and fullness of the rows, for reports."""
        return f"{self.num_rows:,} rows of {self.row_length} tokens, {self.fullness:.2%} full"


def plan_rows(
    document_offsets: Ints,
    take: Callable[[int, int], NDArray[np.integer]],
    take_starts: Callable[[int, int], NDArray[np.bool_]],
    vocab_size: int,
    special_ids: Iterable[int],
    length: int,
    extra: int,
    groups: Ints | None = None,
) -> RowPlan:
    """Return a plan that cuts documents into pieces at word boundaries and packs them in rows of `length` tokens.

    Every token is in exactly one piece. `document_offsets` (documents + 1,) are the positions of the documents in the
    token stream; `take(start, stop)` returns its tokens, and `take_starts(start, stop)` whether each begins a word.
    `special_ids`, which include [UNK], are never masked. A piece gets `extra` special tokens. With `groups`
    (documents,), a row has documents of only one group.
    """
    room = room_for_text(length, extra)
    ordinary = np.ones(vocab_size, dtype=np.int64)
    ordinary[list(special_ids)] = 0
    starts: list[int] = []
    stops: list[int] = []
    maskable: list[int] = []
    pieces: list[int] = []  # per document
    for begin, end in itertools.pairwise(document_offsets.tolist()):
        tokens = take(begin, end)
        cuts = [0, end - begin] if 0 < end - begin <= room else _cut_positions(take_starts(begin, end), room)
        pieces.append(len(cuts) - 1)
        starts.extend(begin + cut for cut in cuts[:-1])
        stops.extend(begin + cut for cut in cuts[1:])
        maskable.extend(np.add.reduceat(ordinary[tokens], cuts[:-1]).tolist() if cuts[1:] else [])
    piece_starts = np.asarray(starts, dtype=np.int64)
    lengths = np.asarray(stops, dtype=np.int64) - piece_starts
    group_of_piece = np.zeros_like(lengths) if groups is None else np.repeat(groups, pieces)
    rows = _pack_groups(lengths + extra, length, group_of_piece)
    order = np.argsort(rows, kind="stable")
    row_offsets = np.concatenate([[0], np.cumsum(np.bincount(rows))]).astype(np.int64)
    counts = np.asarray(maskable, dtype=np.int64)
    return RowPlan(piece_starts[order], lengths[order], counts[order], row_offsets, length, extra)


def _pack_groups(lengths: Ints, capacity: int, groups: Ints) -> Ints:
    """Return the row of each item (items,): `best_fit_decreasing` for the items of each group (items,) separately."""
    rows, count = np.empty_like(lengths), 0
    for group in np.unique(groups):
        selected = groups == group
        rows[selected] = count + best_fit_decreasing(lengths[selected], capacity)
        count = int(rows[selected].max()) + 1
    return rows


def room_for_text(length: int, extra: int) -> int:
    """Return the room for text in a row or window of `length` tokens with `extra` special tokens; `DomainbertError` if
    there is none."""
    if length <= extra:
        raise DomainbertError(f"max_length: found {length}; expected more than the {extra} special tokens of a text")
    return length - extra


def _cut_positions(starts_word: NDArray[np.bool_], room: int) -> list[int]:
    """Return the positions at which to cut a document, with its begin and end; [0] for an empty document.

    They are at most `room` tokens apart, and at word boundaries unless a word is longer.
    """
    size = len(starts_word)
    last_start = np.maximum.accumulate(np.where(starts_word, np.arange(size), 0))  # last word start up to each token
    cuts = [0]
    while size - cuts[-1] > room:
        limit = cuts[-1] + room
        start = int(last_start[limit])
        cuts.append(start if start > cuts[-1] else limit)
    return [*cuts, size] if size else [0]


def text_ids(global_indices: Ints, counts: Ints | Sequence[int]) -> Ints:
    """Return an id of each text of a micro-batch (texts,) that does not depend on the division of the global batch.

    `global_indices` (items,) are the indices of its rows or examples in the global batch, `counts` (items,) the number
    of texts of each.
    """
    per_item = np.asarray(counts, dtype=np.int64)
    return np.repeat(global_indices, per_item) * _MAX_TEXTS + concatenated_ranges(np.zeros_like(per_item), per_item)


@dataclass(frozen=True)
class PackedRows:
    """Rows of token ids, the input of an encoder."""

    input_ids: Ints  # (R, S)
    position_ids: Ints  # (R, S), from 0 in each segment
    segment_ids: Ints  # (R, S), from 1 in each row; 0 is padding
    token_type_ids: Ints  # (R, S), token types of the template; 0 in padding
    first_positions: Ints  # (segments,) index of the first token of each segment in the flattened (R * S) tokens


def fill_rows(rows: Sequence[Sequence[Text]], length: int, template: Template, pad_id: int) -> PackedRows:
    """Return rows of `length` tokens, filled with texts or pairs of texts and their special tokens.

    Each part of the template is written for all texts at once: a loop over texts takes three times as long.
    """
    texts = [text for row in rows for text in row]
    is_pair = np.asarray([isinstance(text, tuple) for text in texts], dtype=np.bool_)
    parts_of = {pair: template.parts(pair) for pair in np.unique(is_pair).tolist()}
    pairs = [text if isinstance(text, tuple) else (text, text[:0]) for text in texts]
    sizes = {"A": _lengths_of([first for first, _ in pairs]), "B": _lengths_of([second for _, second in pairs])}
    # special tokens of each text: the parts of its template without the text, or the two texts of a pair
    num_special = np.asarray([len(parts_of[pair]) - 1 - pair for pair in is_pair.tolist()], dtype=np.int64)
    totals = sizes["A"] + sizes["B"] + num_special
    texts_per_row = np.asarray([len(row) for row in rows], dtype=np.int64)
    before = np.cumsum(totals) - totals  # (texts,) tokens of all previous texts
    # (rows,) tokens of all previous rows
    row_starts = np.concatenate([before, [totals.sum()]])[np.cumsum(texts_per_row) - texts_per_row]
    # (texts,) position of the first token of each text in the flattened rows
    firsts = np.repeat(np.arange(len(rows)) * length - row_starts, texts_per_row) + before

    input_ids = np.full(len(rows) * length, pad_id, dtype=np.int64)
    position_ids, segment_ids, token_type_ids = (np.zeros(len(rows) * length, dtype=np.int64) for _ in range(3))
    for pair, parts in parts_of.items():
        selected = np.flatnonzero(is_pair == pair)
        starts = firsts[selected]
        for token, token_type in parts:
            if isinstance(token, str):
                counts = sizes[token][selected]
                places = concatenated_ranges(starts, counts)
                input_ids[places] = np.concatenate([pairs[text][token == "B"] for text in selected.tolist()])
            else:
                counts, places = np.ones_like(starts), starts
                input_ids[places] = token
            if token_type:
                token_type_ids[places] = token_type
            starts = starts + counts
    places = concatenated_ranges(firsts, totals)
    position_ids[places] = places - np.repeat(firsts, totals)
    segment_ids[places] = np.repeat(concatenated_ranges(np.ones_like(texts_per_row), texts_per_row), totals)
    ids, position, segment, types = (
        values.reshape(len(rows), length) for values in (input_ids, position_ids, segment_ids, token_type_ids)
    )
    return PackedRows(ids, position, segment, types, firsts)


def concatenated_ranges(starts: Ints, counts: Ints) -> Ints:
    """Return `start`, `start` + 1, ..., `start` + `count` - 1 for each start and count, concatenated: (sum of
    counts,)."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def _lengths_of(texts: Sequence[NDArray[np.integer]]) -> Ints:
    return np.asarray([len(text) for text in texts], dtype=np.int64)


def pack_lengths(lengths: Ints, row_length: int) -> list[list[int]]:
    """Return the indices of the texts in each row, packed by best fit decreasing; `lengths` (texts,) include the
    special tokens."""
    rows = best_fit_decreasing(lengths, row_length)
    grouped: list[list[int]] = [[] for _ in range(int(rows.max(initial=-1)) + 1)]
    for index, row in enumerate(rows.tolist()):
        grouped[row].append(index)
    return grouped
