"""Packing: several texts back to back in rows of fixed length, with almost no padding."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.special_tokens import Template

IGNORE_INDEX = -100  # target of a position without a target, the default of `torch.nn.functional.cross_entropy`
Batch = dict[str, Any]
"""Arrays, tensors and numbers of a batch, by name."""
Ints = NDArray[np.int64]
Text = NDArray[np.integer] | tuple[NDArray[np.integer], NDArray[np.integer]]  # ids without special tokens, or a pair
_SHORTEST_ROW = 64  # tokens
_LENGTH_STEP, _NUM_LENGTHS = 16, 5  # candidate row lengths: five multiples of 16, which suit matrix products
_LINEAR_COST = 850  # linear layers of a token cost as much as its attention to 850 tokens: measured with MiniLM on CPU


@dataclass(frozen=True)
class Window:
    """One input of the encoder: a part of an example that fits into its positions, or the whole example."""

    input_ids: Ints  # (n,) pieces without special tokens
    positions: Ints  # (k,) positions that the head reads, relative to the first piece; -1: the special token before it
    outputs: Ints  # (k,) output of the example (word, or 0) of each position; -1: none
    targets: NDArray[Any]  # (k,) label ids, `IGNORE_INDEX` if unknown; or (k, ...) other targets
    extra: int  # number of special tokens
    first: Ints | None = None  # (m,) pieces of the first text of a pair, `input_ids` being the second; None: no pair

    @property
    def text(self) -> Text:
        """Pieces of the text, or of both texts of a pair."""
        return self.input_ids if self.first is None else (self.first, self.input_ids)

    @property
    def num_tokens(self) -> int:
        """Number of tokens, special tokens included."""
        return len(self.input_ids) + self.extra + (0 if self.first is None else len(self.first))


@dataclass(frozen=True)
class Example:
    """A sentence with `num_outputs` words to label, or a text with one label."""

    windows: tuple[Window, ...]
    num_outputs: int

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all windows, special tokens included."""
        return sum(window.num_tokens for window in self.windows)


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
        """Return the indices of the pieces in the rows with the indices `rows`, row by row: (pieces in these rows,)."""
        firsts, ends = self.row_offsets[rows], self.row_offsets[rows + 1]
        return concatenated_ranges(firsts, ends - firsts)

    def most_pieces(self, num_rows: int) -> int:
        """Return the largest number of pieces that a batch of `num_rows` rows can have. A batch that is larger than the
        plan can have the same row several times."""
        pieces_per_row = np.diff(self.row_offsets)
        if len(pieces_per_row) > num_rows:
            return int(np.partition(pieces_per_row, -num_rows)[-num_rows:].sum())  # of the rows with the most pieces
        return int(pieces_per_row.max()) * num_rows

    @property
    def fullness(self) -> float:
        """Share of the positions that are not padding."""
        used = int(self.lengths.sum()) + self.extra * len(self.lengths)  # text and special tokens
        return used / max(self.num_rows * self.row_length, 1)

    @property
    def summary(self) -> str:
        """Number, length and fullness of the rows, for reports."""
        return f"{self.num_rows:,} rows of {self.row_length} tokens, {self.fullness:.2%} full"


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
    num_alone = int(np.count_nonzero(lengths > capacity - shortest))
    rows[order[:num_alone]] = np.arange(num_alone)

    # put each other item into the open row with the least sufficient space, or into a new row
    open_rows: list[list[int]] = [[] for _ in range(capacity + 1)]  # by free space; the row filled last at the end
    spaces: list[int] = []  # free spaces that occur, ascending
    num_rows = num_alone
    for item in order[num_alone:].tolist():
        length = int(lengths[item])
        index = bisect_left(spaces, length)
        if index == len(spaces):
            row, free = num_rows, capacity
            num_rows += 1
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


def room_for_text(length: int, extra: int) -> int:
    """Return the room for text in a row or window of `length` tokens with `extra` special tokens. Raise
    `DomainbertError` if there is none."""
    if length <= extra:
        raise DomainbertError(
            where="max_length", found=length, expected=f"more than the {extra} special tokens of a text"
        )
    return length - extra


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

    A template is a list of parts, each with its token type: the id of a special token, or "A" or "B" in place of the
    first or second text. A part is written for all texts at once: a loop over texts takes three times as long.
    """
    # sizes of the texts
    texts = [text for row in rows for text in row]
    is_pair = np.asarray([isinstance(text, tuple) for text in texts], dtype=np.bool_)
    # a tokenizer without a template of pairs is an error when a pair is encoded (`Template.num_special_tokens`)
    templates = {pair: template.pair if pair else template.single for pair in np.unique(is_pair).tolist()}
    # all texts as pairs: the second text of a single text is empty
    pairs = [text if isinstance(text, tuple) else (text, text[:0]) for text in texts]
    sizes = {"A": _lengths_of([first for first, _ in pairs]), "B": _lengths_of([second for _, second in pairs])}
    num_special = {pair: len(parts) - (2 if pair else 1) for pair, parts in templates.items()}  # without "A" and "B"
    totals = sizes["A"] + sizes["B"] + np.asarray([num_special[pair] for pair in is_pair.tolist()], dtype=np.int64)

    # positions of the texts
    texts_per_row = np.asarray([len(row) for row in rows], dtype=np.int64)
    row_of = np.repeat(np.arange(len(rows)), texts_per_row)  # (texts,)
    first_texts = np.cumsum(texts_per_row) - texts_per_row  # (rows,)
    num_before = np.cumsum(totals) - totals  # (texts,) tokens of all previous texts
    num_before_in_row = num_before - num_before[first_texts[row_of]]
    firsts = row_of * length + num_before_in_row  # (texts,) first token of each text in the flattened rows

    # tokens: for single texts and for pairs, part by part of the template
    input_ids = np.full(len(rows) * length, pad_id, dtype=np.int64)
    position_ids, segment_ids, token_type_ids = (np.zeros(len(rows) * length, dtype=np.int64) for _ in range(3))
    for pair, parts in templates.items():
        selected = np.flatnonzero(is_pair == pair)
        starts = firsts[selected]  # of the current part, in each text
        for token, token_type in parts:
            if isinstance(token, str):  # "A" or "B"
                counts = sizes[token][selected]
                places = concatenated_ranges(starts, counts)
                side = ("A", "B").index(token)
                input_ids[places] = np.concatenate([pairs[text][side] for text in selected.tolist()])
            else:
                counts, places = np.ones_like(starts), starts
                input_ids[places] = token
            if token_type:
                token_type_ids[places] = token_type
            starts = starts + counts

    places = concatenated_ranges(firsts, totals)
    position_ids[places] = places - np.repeat(firsts, totals)
    numbers_in_rows = concatenated_ranges(np.ones_like(texts_per_row), texts_per_row)  # (texts,) 1, 2, ... in each row
    segment_ids[places] = np.repeat(numbers_in_rows, totals)
    ids, position, segment, types = (
        values.reshape(len(rows), length) for values in (input_ids, position_ids, segment_ids, token_type_ids)
    )
    return PackedRows(ids, position, segment, types, firsts)


def concatenated_ranges(starts: Ints, counts: Ints) -> Ints:
    """Return `start`, `start` + 1, ..., `start` + `count` - 1 for each start and count, concatenated.

    >>> concatenated_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    positions = np.cumsum(counts) - counts  # of each range in the result
    return np.repeat(starts - positions, counts) + np.arange(counts.sum())


def _lengths_of(texts: Sequence[NDArray[np.integer]]) -> Ints:
    return np.asarray([len(text) for text in texts], dtype=np.int64)


def pack_lengths(lengths: Ints, row_length: int) -> list[list[int]]:
    """Return the indices of the texts in each row, packed by best fit decreasing; `lengths` (texts,) include the
    special tokens."""
    rows = best_fit_decreasing(lengths, row_length)
    grouped: list[list[int]] = [[] for _ in range(int(rows.max(initial=-1)) + 1)]  # -1: no row without texts
    for index, row in enumerate(rows.tolist()):
        grouped[row].append(index)
    return grouped


def _cheapest_rows(lengths: Ints) -> tuple[int, list[list[int]]]:
    # longer rows can have less padding, so that linear layers cost less; but attention costs more
    if lengths.sum() <= _SHORTEST_ROW:  # all texts fit into one row
        length = _round_up(int(lengths.sum()), 8)
        return length, pack_lengths(lengths, length)
    shortest = _round_up(max(int(lengths.max()), _SHORTEST_ROW), _LENGTH_STEP)
    best, least_cost = (0, list[list[int]]()), math.inf
    for length in range(shortest, shortest + _LENGTH_STEP * _NUM_LENGTHS, _LENGTH_STEP):
        cost_per_row = length * (_LINEAR_COST + length)
        num_full_rows = -(-int(lengths.sum()) // length)  # the lowest possible number of rows: without padding
        if num_full_rows * cost_per_row < least_cost:  # otherwise, packing cannot lower the cost
            rows = pack_lengths(lengths, length)
            if len(rows) * cost_per_row < least_cost:
                best, least_cost = (length, rows), len(rows) * cost_per_row
    return best


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def positions_read(windows: Sequence[tuple[int, Window]], first_tokens: Ints) -> Batch:
    """Return arrays (N,) of the N positions that the head reads in the rows of a batch: `positions` in the flattened
    rows, `example` (number of the example), `outputs` and `targets` (see `Window`).

    Args:
        windows: example number and window of each text in the rows, in order.
        first_tokens: (windows,) index of the first token of each text in the flattened rows.
    """
    num_positions = [len(window.positions) for _, window in windows]
    offsets = np.repeat(first_tokens + 1, num_positions)  # positions of a window count from the token after [CLS]
    return {
        "positions": np.concatenate([window.positions for _, window in windows]) + offsets,
        "example": np.repeat([number for number, _ in windows], num_positions),
        "outputs": np.concatenate([window.outputs for _, window in windows]),
        "targets": np.concatenate([window.targets for _, window in windows]),
    }


def collate(examples: Sequence[Example], items: Sequence[int], tokenizer: DomainTokenizer) -> Batch:
    """Return a batch of whole examples packed in rows; `items` are the indices of the examples in the data set.

    Returns:
        `input_ids`, `position_ids`, `segment_ids` (R, S), for pairs also `token_type_ids`; `items` (E,); and for every
        position that the head reads (N,): `positions` in the flattened tokens, `example` (index in this batch),
        `outputs` and `targets` (see `Window`).
    """
    windows = [(number, window) for number, example in enumerate(examples) for window in example.windows]
    texts = [window.text for _, window in windows]
    lengths = np.asarray([window.num_tokens for _, window in windows], dtype=np.int64)
    length, rows = _cheapest_rows(lengths)
    packed = fill_rows([[texts[i] for i in row] for row in rows], length, tokenizer.template, tokenizer.pad_id)
    window_order = [i for row in rows for i in row]
    batch: Batch = {
        "input_ids": packed.input_ids,
        "position_ids": packed.position_ids,
        "segment_ids": packed.segment_ids,
        "items": np.asarray(items, dtype=np.int64),
        **positions_read([windows[i] for i in window_order], packed.first_positions),
    }
    if any(window.first is not None for _, window in windows):
        batch["token_type_ids"] = packed.token_type_ids
    return batch
